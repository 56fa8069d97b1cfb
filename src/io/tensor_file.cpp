#include "io/tensor_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "io/file.h"
#include "io/json_cursor.h"
#include "io/safetensors_header.h"
#include "io/tensor_header.h"

namespace ebb::io {

struct TensorFile::Shard {
  Shard(ReadFile f, int64_t start, std::map<std::string, std::string> m)
      : file(std::move(f)), data_start(start), metadata(std::move(m)) {}
  const ReadFile file;
  const int64_t data_start;
  const std::map<std::string, std::string> metadata;
  // Of its data, which are those that the header was of.
  void read(int64_t at, std::span<uint8_t> out) const {
    file.read(data_start + at, out);
    file.check_unchanged();
  }
  std::shared_ptr<Buffer> mapping() const {
    std::call_once(once_, [this] { mapping_ = file.map(); });
    return mapping_;
  }

 private:
  mutable std::once_flag once_;
  mutable std::shared_ptr<Buffer> mapping_;
};

namespace {

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

// "model.safetensors.index.json", "model.safetensors.index.fp16.json".
bool is_index(const std::string& path) {
  return path.ends_with(".json") &&
         std::filesystem::path(path).filename().string().find(".index.") != std::string::npos;
}

// Of latent diffusion's training: the names of the weights without their dots.
constexpr std::string_view weights_of_average = "model.", averages = "model_ema.";

std::string average_of(std::string_view weight) {
  if (!weight.starts_with(weights_of_average)) return "";
  std::string out(weight.substr(weights_of_average.size()));
  std::erase(out, '.');
  return std::string(averages) + out;
}

Tensor from_f64(const Shape& shape, std::span<const uint8_t> bytes) {
  Tensor out(DType::f32, shape);
  const std::span<float> to = out.span<float>();
  for (size_t i = 0; i < to.size(); ++i) {
    double v = 0;
    std::memcpy(&v, bytes.data() + i * sizeof v, sizeof v);
    to[i] = static_cast<float>(v);
  }
  return out;
}

// Of any ending. An Error of a file that is named as one of torch says that it is none, either.
TensorHeader header_of_safetensors(const ReadFile& file) {
  const std::string ending = std::filesystem::path(file.name()).extension().string();
  constexpr std::array torch = {".pt", ".pth", ".bin", ".ckpt"};
  if (std::ranges::find(torch, ending) == torch.end()) return read_safetensors(file);
  try {
    return read_safetensors(file);
  } catch (const Error& e) {
    fail("torch: not a file of torch.save; ", e.what());
  }
}

// A scale may be in another shard than its weight.
void pair_scales(std::vector<TensorEntry>& entries, const std::vector<std::string>& files,
                 std::unordered_map<std::string, size_t>& index) {
  take_scales(entries, files);
  index.clear();
  for (size_t i = 0; i < entries.size(); ++i) index.emplace(entries[i].name, i);
}

}  // namespace

void TensorFile::add(std::shared_ptr<const Shard> shard, std::vector<TensorEntry> entries) {
  metadata_.insert(shard->metadata.begin(), shard->metadata.end());
  for (TensorEntry& e : entries) {
    e.shard = shards_.size();
    const auto [other, fresh] = index_.emplace(e.name, entries_.size());
    require(fresh, "safetensors: tensor '", e.name, "' must be in one shard only  ",
            shard->file.name(), " and ",
            fresh ? "" : shards_[entries_[other->second].shard]->file.name());
    entries_.push_back(std::move(e));
  }
  shards_.push_back(std::move(shard));
}

void TensorFile::add(ReadFile file, const TensorFileOptions& options) {
  TensorHeader header = is_torch(file) ? read_torch(file, options) : header_of_safetensors(file);
  add(std::make_shared<Shard>(std::move(file), header.data_start, std::move(header.metadata)),
      std::move(header.entries));
}

TensorFile TensorFile::open(const std::string& path, const TensorFileOptions& options) {
  TensorFile out;
  if (is_index(path))
    out = open_index(path, options);
  else
    out.add(ReadFile::open(path, "safetensors"), options);
  pair_scales(out.entries_, out.files(), out.index_);
  if (options.averaged) out.take_averages();
  return out;
}

TensorFile TensorFile::from_bytes(std::span<const uint8_t> bytes, std::string name) {
  TensorFile out;
  out.add(ReadFile::from_bytes(bytes, std::move(name)), {});
  pair_scales(out.entries_, out.files(), out.index_);
  return out;
}

TensorFile TensorFile::open_index(const std::string& path, const TensorFileOptions& options) {
  const std::map<std::string, std::string> map = read_index(path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  TensorFile out;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const std::string& name : names) {
    TensorFile shard;
    shard.add(ReadFile::open((folder / name).string(), "safetensors"), options);
    for (const TensorEntry& e : shard.entries_) {
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

bool TensorFile::has_averages() const {
  return metadata_.contains("torch.averages") ||
         std::ranges::any_of(entries_,
                             [&](const TensorEntry& e) { return contains(average_of(e.name)); });
}

// The weights' names then stand for the averages' bytes. A file whose unwrapping has found averages
// says so by its metadata.
void TensorFile::take_averages() {
  require(has_averages(), "averages: the file has none (no model_ema.* and no params_ema)  ",
          files().front());
  for (TensorEntry& e : entries_) {
    const auto at = index_.find(average_of(e.name));
    if (at == index_.end()) continue;
    TensorEntry average = entries_[at->second];
    require(average.shape == e.shape, "averages: must have the shapes of the weights (",
            average.shape, " for ", e.shape, ")  ", e.name, " in ", files().front());
    average.name = e.name;
    e = std::move(average);
  }
}

std::vector<std::string> TensorFile::files() const {
  std::vector<std::string> names;
  for (const auto& s : shards_) names.push_back(s->file.name());
  return names;
}

const TensorEntry& TensorFile::find(const std::string& name) const {
  const auto at = index_.find(name);
  if (at != index_.end()) return entries_[at->second];
  std::vector<std::string> known;
  for (const TensorEntry& e : entries_) known.push_back(e.name);
  const std::string near = nearest_name(name, known);
  fail("safetensors: no tensor '", name, "'",
       near.empty() ? str(" among ", known.size()) : " (did you mean '" + near + "'?)", "  ",
       shards_.empty() ? "no file" : shards_.front()->file.name());
}

Tensor TensorFile::load(const std::string& name) const { return load(find(name)); }

Tensor TensorFile::load(const TensorEntry& e) const {
  const Shard& shard = *shards_.at(e.shard);
  if (!e.dtype) {
    const std::string why = why_not_read(e, [&](const std::string& n) { return contains(n); });
    fail("safetensors: tensor '", e.name, "' has a dtype that cannot be loaded (", e.file_dtype,
         why.empty() ? "" : ", ", why, ")  ", shard.file.name());
  }
  if (as_stored(e)) {
    Tensor out(*e.dtype, e.shape);
    shard.read(e.begin, {static_cast<uint8_t*>(out.raw()), static_cast<size_t>(out.bytes())});
    return out;
  }
  const std::vector<uint8_t> bytes = gathered(e);
  if (e.file_dtype == "F64") return from_f64(e.shape, bytes);
  if (e.scale || e.file_dtype.starts_with("F8_")) {
    Tensor out = e.file_dtype == "I8" ? from_int8(e, bytes) : from_fp8(e, bytes);
    if (!e.scale) return out;
    apply_scale(out, load(*e.scale));
    return out;
  }
  Tensor out(*e.dtype, e.shape);
  if (!bytes.empty()) std::memcpy(out.raw(), bytes.data(), bytes.size());
  if (e.file_dtype == "BOOL")
    for (uint8_t& v : out.span<uint8_t>()) v = v != 0;
  return out;
}

// The elements row by row.
std::vector<uint8_t> TensorFile::gathered(const TensorEntry& e) const {
  const Shard& shard = *shards_.at(e.shard);
  std::vector<uint8_t> from(static_cast<size_t>(e.end - e.begin));
  shard.read(e.begin, from);
  if (e.strides.empty()) return from;
  const auto size = static_cast<size_t>(find_file_dtype(e.file_dtype)->bits / 8);
  const int64_t n = e.shape.numel(), rank = e.shape.rank();
  std::vector<uint8_t> out(static_cast<size_t>(n) * size);
  std::vector<int64_t> at(static_cast<size_t>(rank), 0);
  int64_t place = 0;
  for (int64_t i = 0; i < n; ++i) {
    std::memcpy(out.data() + static_cast<size_t>(i) * size,
                from.data() + static_cast<size_t>(place) * size, size);
    for (int64_t d = rank; d-- > 0;) {
      const auto k = static_cast<size_t>(d);
      place += e.strides[k];
      if (++at[k] < e.shape[d]) break;
      place -= e.strides[k] * e.shape[d];
      at[k] = 0;
    }
  }
  return out;
}

bool TensorFile::as_stored(const TensorEntry& e) {
  return e.dtype && e.strides.empty() && e.file_dtype == safetensors_dtype(*e.dtype);
}

void TensorFile::read(const TensorEntry& e, int64_t at, std::span<uint8_t> out) const {
  const Shard& shard = *shards_.at(e.shard);
  const auto bytes = static_cast<int64_t>(out.size());
  require(at >= 0 && bytes <= e.end - e.begin && at <= e.end - e.begin - bytes,
          "safetensors: read past the end of tensor '", e.name, "' (", bytes, " bytes at ", at,
          " of ", e.end - e.begin, ")  ", shard.file.name());
  shard.read(e.begin + at, out);
}

Tensor TensorFile::map(const TensorEntry& e) const {
  const Shard& shard = *shards_.at(e.shard);
  const int64_t offset = shard.data_start + e.begin;
  if (!as_stored(e) || offset % size_of(*e.dtype) != 0) return {};
  const auto mapping = shard.mapping();
  return mapping ? Tensor({*e.dtype, e.shape}, mapping, offset) : Tensor();
}

}  // namespace ebb::io
