#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "base/names.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/json_cursor.h"
#include "io/safetensors_header.h"

namespace ebb::io {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

struct SafetensorsFile::Shard {
  Shard(ReadFile f, int64_t start, std::map<std::string, std::string> m)
      : file(std::move(f)), data_start(start), metadata(std::move(m)) {}
  const ReadFile file;
  const int64_t data_start;
  const std::map<std::string, std::string> metadata;
  std::shared_ptr<Buffer> mapping() const {
    std::call_once(once_, [this] { mapping_ = file.map(); });
    return mapping_;
  }

 private:
  mutable std::once_flag once_;
  mutable std::shared_ptr<Buffer> mapping_;
};

namespace {

struct ParsedFile {
  SafetensorsHeader header;
  int64_t data_start = 0;
};

// What a file is that begins so, as far as one can tell; "" if one cannot.
std::string_view other_format(const std::array<uint8_t, 8>& head) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> known{{
      {"\x89PNG", "is a PNG image"},
      {"\xff\xd8\xff", "is a JPEG image"},
      {"RIFF", "is a WebP image"},
      {"PK\x03\x04", "is a zip archive, as PyTorch's .pt and .ckpt files are; convert it"},
      {"\x80\x02", "is a pickle of Python; convert it"},
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

ParsedFile read_header(const ReadFile& file) {
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
  return {parse_safetensors_header(json, rest - length, file.name()), 8 + length};
}

// tensor name -> file name, from a `*.safetensors.index.json`.
std::map<std::string, std::string> read_index(const std::string& path) {
  const std::string text = read_whole_file(path, "safetensors index", safetensors_header_limit);
  JsonCursor cursor(text, "safetensors index", path);
  std::map<std::string, std::string> files;
  bool found = false;
  cursor.object("index", [&](const std::string& key) {
    if (key != "weight_map") return cursor.skip();
    found = true;
    cursor.object("weight_map", [&](const std::string& name) {
      const std::string file = cursor.string("file name");
      const bool bare = !file.empty() && file != "." && file != ".." &&
                        file.find_first_of(std::string_view("/\\:\0", 4)) == std::string::npos;
      if (!bare) cursor.failed(shown(file) + " must be a bare file name");
      files.emplace(name, file);
    });
  });
  cursor.end(" \t\r\n");
  require(found, "safetensors index: must have a weight_map  ", path);
  return files;
}

Tensor load_f64(const ReadFile& file, int64_t offset, const Shape& shape) {
  Tensor out(DType::f32, shape);
  std::span<float> to = out.span<float>();
  std::vector<double> chunk(std::min<size_t>(to.size(), 1 << 16));
  while (!to.empty()) {
    const size_t n = std::min(chunk.size(), to.size());
    file.read(offset, {reinterpret_cast<uint8_t*>(chunk.data()), n * sizeof(double)});
    std::transform(chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(n), to.begin(),
                   [](double v) { return static_cast<float>(v); });
    to = to.subspan(n);
    offset += static_cast<int64_t>(n * sizeof(double));
  }
  return out;
}

}  // namespace

void SafetensorsFile::add(std::shared_ptr<const Shard> shard,
                          std::vector<SafetensorsEntry> entries) {
  metadata_.insert(shard->metadata.begin(), shard->metadata.end());
  for (SafetensorsEntry& e : entries) {
    e.shard = shards_.size();
    const auto [other, fresh] = index_.emplace(e.name, entries_.size());
    require(fresh, "safetensors: tensor '", e.name, "' must be in one shard only  ",
            shard->file.name(), " and ",
            fresh ? "" : shards_[entries_[other->second].shard]->file.name());
    entries_.push_back(std::move(e));
  }
  shards_.push_back(std::move(shard));
}

void SafetensorsFile::add(ReadFile file) {
  auto [header, start] = read_header(file);
  add(std::make_shared<Shard>(std::move(file), start, std::move(header.metadata)),
      std::move(header.entries));
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  if (path.ends_with(".index.json")) return open_index(path);
  SafetensorsFile out;
  out.add(ReadFile::open(path, "safetensors"));
  return out;
}

SafetensorsFile SafetensorsFile::from_bytes(std::span<const uint8_t> bytes, std::string name) {
  SafetensorsFile out;
  out.add(ReadFile::from_bytes(bytes, std::move(name)));
  return out;
}

SafetensorsFile SafetensorsFile::open_index(const std::string& path) {
  const std::map<std::string, std::string> map = read_index(path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  SafetensorsFile out;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const std::string& name : names) {
    SafetensorsFile shard;
    shard.add(ReadFile::open((folder / name).string(), "safetensors"));
    for (const SafetensorsEntry& e : shard.entries_) {
      const auto mapped = map.find(e.name);
      require(mapped != map.end() && mapped->second == name, "safetensors index: tensor '", e.name,
              "' is in ", name, " but mapped to ", mapped == map.end() ? "none" : mapped->second,
              "  ", path);
    }
    out.add(shard.shards_.front(), std::move(shard.entries_));
  }
  for (const auto& [tensor, file] : map)
    require(out.contains(tensor), "safetensors index: tensor '", tensor, "' is not in ", file, "  ",
            path);
  return out;
}

std::vector<std::string> SafetensorsFile::files() const {
  std::vector<std::string> names;
  for (const auto& s : shards_) names.push_back(s->file.name());
  return names;
}

const SafetensorsEntry& SafetensorsFile::find(const std::string& name) const {
  const auto at = index_.find(name);
  if (at != index_.end()) return entries_[at->second];
  std::vector<std::string> known;
  for (const SafetensorsEntry& e : entries_) known.push_back(e.name);
  const std::string near = nearest_name(name, known);
  fail("safetensors: no tensor '", name, "'",
       near.empty() ? str(" among ", known.size()) : " (did you mean '" + near + "'?)", "  ",
       shards_.empty() ? "no file" : shards_.front()->file.name());
}

Tensor SafetensorsFile::load(const std::string& name) const { return load(find(name)); }

Tensor SafetensorsFile::load(const SafetensorsEntry& e) const {
  const Shard& shard = *shards_.at(e.shard);
  require(e.dtype.has_value(), "safetensors: tensor '", e.name, "' has a dtype that cannot be ",
          "loaded (", e.file_dtype, ")  ", shard.file.name());
  const int64_t offset = shard.data_start + e.begin;
  if (e.file_dtype == "F64") return load_f64(shard.file, offset, e.shape);
  Tensor out(*e.dtype, e.shape);
  shard.file.read(offset, {static_cast<uint8_t*>(out.raw()), static_cast<size_t>(out.bytes())});
  if (e.file_dtype == "BOOL")
    for (uint8_t& v : out.span<uint8_t>()) v = v != 0;
  return out;
}

bool SafetensorsFile::as_stored(const SafetensorsEntry& e) {
  return e.dtype && e.file_dtype == safetensors_dtype(*e.dtype);
}

void SafetensorsFile::read(const SafetensorsEntry& e, int64_t at, std::span<uint8_t> out) const {
  const Shard& shard = *shards_.at(e.shard);
  const auto bytes = static_cast<int64_t>(out.size());
  require(at >= 0 && bytes <= e.end - e.begin && at <= e.end - e.begin - bytes,
          "safetensors: read past the end of tensor '", e.name, "' (", bytes, " bytes at ", at,
          " of ", e.end - e.begin, ")  ", shard.file.name());
  shard.file.read(shard.data_start + e.begin + at, out);
}

Tensor SafetensorsFile::map(const SafetensorsEntry& e) const {
  const Shard& shard = *shards_.at(e.shard);
  const int64_t offset = shard.data_start + e.begin;
  if (!as_stored(e) || offset % size_of(*e.dtype) != 0) return {};
  const auto mapping = shard.mapping();
  return mapping ? Tensor({*e.dtype, e.shape}, mapping, offset) : Tensor();
}

// ---- writing ----

namespace {

std::string header_json(std::span<const NamedTensor> tensors,
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
  for (const auto& [name, t] : tensors) {
    next();
    out += json_string(name) + ":{\"dtype\":\"" + std::string(safetensors_dtype(t.dtype())) +
           "\",\"shape\":[";
    for (int64_t d = 0; d < t.shape().rank(); ++d)
      out += (d ? "," : "") + std::to_string(t.shape()[d]);
    out +=
        "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + t.bytes()) + "]}";
    at += t.bytes();
  }
  out += "}";
  while (out.size() % 8 != 0) out += ' ';
  return out;
}

void check_writable(std::span<const NamedTensor> tensors,
                    const std::map<std::string, std::string>& metadata, const std::string& path) {
  for (const auto& [key, value] : metadata)
    require(valid_utf8(key) && valid_utf8(value), "safetensors: metadata must be valid UTF-8  ",
            path);
  for (const auto& [name, t] : tensors)
    require(t.defined() && t.buffer()->on_host() && valid_utf8(name) && name != "__metadata__",
            "safetensors: cannot write tensor '", name,
            "': it must be on the host and have a UTF-8 name other than __metadata__  ", path);
}

}  // namespace

void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata) {
  check_writable(tensors, metadata, path);
  const std::string json = header_json(tensors, metadata);
  require(static_cast<int64_t>(json.size()) <= safetensors_header_limit,
          "safetensors: header must be at most ", safetensors_header_limit, " bytes (", json.size(),
          ")  ", path);
  int64_t data_bytes = 0;
  for (const auto& [name, t] : tensors) data_bytes += t.bytes();
  parse_safetensors_header(json, data_bytes, path);  // what we could not read, we do not write
  AtomicFile file(path, "safetensors");
  const auto length = std::bit_cast<std::array<uint8_t, 8>>(uint64_t{json.size()});
  file.write(length);
  file.write(json);
  for (const auto& [name, t] : tensors)
    file.write({static_cast<const uint8_t*>(t.raw()), static_cast<size_t>(t.bytes())});
  file.commit();
}

}  // namespace ebb::io
