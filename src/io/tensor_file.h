// Files of named tensors: safetensors, and what torch.save writes (.ckpt, .pt, .pth, .bin).
//
// The first bytes say which. Headers are checked whole before anything is loaded, and nothing that
// a file holds is executed: a malformed or hostile file is one Error that names the file, the
// broken rule and the numbers, `safetensors: <rule> (<numbers>)  <file>`.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tensor.h"

namespace ebb::io {

class ReadFile;

struct TensorEntry {
  std::string name;
  std::string file_dtype;      // as safetensors name it: "F32", "F8_E4M3", ...
  std::optional<DType> dtype;  // of the tensor that load() gives; none: it cannot be loaded
  Shape shape;
  std::vector<int64_t> strides = {};  // in elements; empty: row by row, without holes
  int64_t begin = 0;                  // bytes, from the start of the data of its file
  int64_t end = 0;
  // Of weights in fp8 or int8: F32, one number or one a row, which the file's numbers are
  // multiplied with.
  std::shared_ptr<const TensorEntry> scale = {};
  size_t shard = 0;  // index into TensorFile::files()
};

struct TensorFileOptions {
  bool averaged = false;  // the weights' moving averages (EMA), where the file has them beside
};

// An open file, or all the shards of an index (`*.safetensors.index.json`, `*.bin.index.json`).
// Copies share the descriptors.
class TensorFile {
 public:
  // Reads and checks the headers; loads no data. Throws Error.
  static TensorFile open(const std::string& path, const TensorFileOptions& options = {});
  // A file that lies in memory; `bytes` must outlive the result.
  static TensorFile from_bytes(std::span<const uint8_t> bytes, std::string name);

  // In file order: by shard (file names sorted), then by place in the data.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  // Of safetensors `__metadata__`; of torch's files the numbers and texts beside the tensors, and
  // "torch.not_read": what has tensors and was not taken. Of shards, the union (the first file wins
  // where they differ).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::vector<std::string> files() const;
  // Whether there are moving averages beside the weights.
  bool has_averages() const;

  bool contains(const std::string& name) const { return index_.contains(name); }
  // Throws Error that suggests the nearest name.
  const TensorEntry& find(const std::string& name) const;
  // The tensor's bytes on the host. F64 is rounded to f32, BOOL becomes u8 of 0 and 1, fp8 becomes
  // bf16, which has all of its numbers, or with a scale f32, as int8 with a scale does; the dtypes
  // for which find().dtype is empty are an Error.
  Tensor load(const std::string& name) const;
  Tensor load(const TensorEntry& entry) const;
  // The tensor's bytes from `at` on, as the file has them. Any number of threads may read at a
  // time.
  void read(const TensorEntry& entry, int64_t at, std::span<uint8_t> out) const;
  // True: the file's bytes are those of the tensor that load() gives.
  static bool as_stored(const TensorEntry& entry);
  // The tensor in a read-only mapping of the file (see ReadFile::map); undefined where the file's
  // bytes are not the tensor's, are not aligned as its elements must be, or cannot be mapped.
  Tensor map(const TensorEntry& entry) const;

 private:
  struct Shard;
  void add(ReadFile file, const TensorFileOptions& options);
  void add(std::shared_ptr<const Shard> shard, std::vector<TensorEntry> entries);
  void take_averages();
  static TensorFile open_index(const std::string& path, const TensorFileOptions& options);
  std::vector<uint8_t> gathered(const TensorEntry& entry) const;

  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace ebb::io
