#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/json_cursor.h"
#include "io/safetensors_header.h"

namespace ebb::io {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

namespace {

// What a file is that begins so, as far as one can tell; "" if one cannot.
std::string_view other_format(const std::array<uint8_t, 8>& head) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> known{{
      {"\x89PNG", "is a PNG image"},
      {"\xff\xd8\xff", "is a JPEG image"},
      {"RIFF", "is a WebP image"},
      {"GGUF", "is a GGUF file"},
      {"\x1f\x8b", "is compressed by gzip"},
      {"\x7f"
       "ELF",
       "is a program"},
      {"{", "is JSON text"},
  }};
  const std::string_view begins(reinterpret_cast<const char*>(head.data()), head.size());
  for (const auto& [magic, name] : known)
    if (begins.starts_with(magic)) return name;
  const bool text = std::ranges::all_of(
      begins, [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; });
  return text ? "is text" : "";
}

}  // namespace

TensorHeader read_safetensors(const ReadFile& file) {
  require(file.size() >= 8, "safetensors: file must have at least 8 bytes (", file.size(), ")  ",
          file.name());
  std::array<uint8_t, 8> head{};
  file.read(0, head);
  const uint64_t n = std::bit_cast<uint64_t>(head);
  if (n > uint64_t{safetensors_header_limit}) {
    const std::string_view other = other_format(head);
    require(other.empty(), "safetensors: must be a safetensors file (this ", other, ")  ",
            file.name());
    fail("safetensors: header must be at most ", safetensors_header_limit, " bytes (", n,
         "); is this a safetensors file?  ", file.name());
  }
  const int64_t length = static_cast<int64_t>(n), rest = file.size() - 8;
  require(length <= rest, "safetensors: header must end within the file (", length, " of ", rest,
          " bytes)  ", file.name());
  std::string json(static_cast<size_t>(length), '\0');
  file.read(8, {reinterpret_cast<uint8_t*>(json.data()), json.size()});
  TensorHeader out = parse_safetensors_header(json, rest - length, file.name());
  out.data_start = 8 + length;
  return out;
}

// ---- writing ----

namespace {

int64_t bytes_of(const TensorToWrite& t) {
  return t.shape.numel() * find_file_dtype(t.file_dtype)->bits / 8;
}

std::string header_json(std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata) {
  std::string out = "{";
  const auto next = [&] { out += out.size() > 1 ? "," : ""; };
  if (!metadata.empty()) {
    out += "\"__metadata__\":{";
    for (bool first = true; const auto& [key, value] : metadata) {
      out += (std::exchange(first, false) ? "" : ",") + json_string(key) + ":" + json_string(value);
    }
    out += "}";
  }
  int64_t at = 0;
  for (const TensorToWrite& t : tensors) {
    next();
    out += json_string(t.name) + ":{\"dtype\":\"" + t.file_dtype + "\",\"shape\":[";
    for (int64_t d = 0; d < t.shape.rank(); ++d) out += (d ? "," : "") + std::to_string(t.shape[d]);
    out +=
        "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + bytes_of(t)) + "]}";
    at += bytes_of(t);
  }
  out += "}";
  while (out.size() % 8 != 0) out += ' ';
  return out;
}

void check_metadata(const std::map<std::string, std::string>& metadata, const std::string& path) {
  for (const auto& [key, value] : metadata)
    require(valid_utf8(key) && valid_utf8(value), "safetensors: metadata must be valid UTF-8  ",
            path);
}

void check_name(bool ok, const std::string& name, const std::string& path) {
  require(ok && valid_utf8(name) && name != "__metadata__", "safetensors: cannot write tensor '",
          name, "': it must be on the host and have a UTF-8 name other than __metadata__  ", path);
}

}  // namespace

void stream_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata, Existing existing) {
  check_metadata(metadata, path);
  int64_t data_bytes = 0;
  for (const TensorToWrite& t : tensors) {
    check_name(true, t.name, path);
    require(find_file_dtype(t.file_dtype), "safetensors: no dtype ", t.file_dtype, "  ", path);
    data_bytes += bytes_of(t);
  }
  const std::string json = header_json(tensors, metadata);
  require(static_cast<int64_t>(json.size()) <= safetensors_header_limit,
          "safetensors: header must be at most ", safetensors_header_limit, " bytes (", json.size(),
          ")  ", path);
  parse_safetensors_header(json, data_bytes, path);  // what we could not read, we do not write
  AtomicFile file(path, "safetensors");
  const auto length = std::bit_cast<std::array<uint8_t, 8>>(uint64_t{json.size()});
  file.expect(static_cast<int64_t>(length.size() + json.size()) + data_bytes);
  file.write(length);
  file.write(json);
  for (const TensorToWrite& t : tensors) {
    int64_t left = bytes_of(t);
    t.data([&](std::span<const uint8_t> bytes) {
      left -= static_cast<int64_t>(bytes.size());
      file.write(bytes);
    });
    require(left == 0, "safetensors: tensor '", t.name, "' must have ", bytes_of(t), " bytes (",
            bytes_of(t) - left, ")  ", path);
  }
  file.commit(existing);
}

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata, Existing existing) {
  std::vector<TensorToWrite> all;
  for (const auto& [name, t] : tensors) {
    check_name(t.defined() && t.buffer()->on_host(), name, path);
    all.push_back(
        {name, std::string(safetensors_dtype(t.dtype())), t.shape(), [&t = t](const ByteSink& out) {
           out({static_cast<const uint8_t*>(t.raw()), static_cast<size_t>(t.bytes())});
         }});
  }
  stream_safetensors(path, all, metadata, existing);
}

}  // namespace ebb::io
