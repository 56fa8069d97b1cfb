// safetensors files: a JSON header with names, types and byte ranges, then the tensors' bytes.
//
// Headers are checked whole before anything is loaded: a malformed file is one Error that names
// the file, the broken rule and the numbers, `safetensors: <rule> (<numbers>)  <file>`.
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

struct SafetensorsEntry {
  std::string name;
  std::string file_dtype;      // as the file says: "F32", "F8_E4M3", ...
  std::optional<DType> dtype;  // of the tensor that load() gives; none: it cannot be loaded
  Shape shape;
  int64_t begin = 0;  // bytes, from the start of the data of its file
  int64_t end = 0;
  size_t shard = 0;  // index into SafetensorsFile::files()
};

// An open file, or all the shards of a `*.safetensors.index.json`. Copies share the descriptors.
class SafetensorsFile {
 public:
  // Reads and checks the headers; loads no data. Throws Error.
  static SafetensorsFile open(const std::string& path);
  // A file that lies in memory; `bytes` must outlive the result.
  static SafetensorsFile from_bytes(std::span<const uint8_t> bytes, std::string name);

  // In file order: by shard (file names sorted), then by place in the data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // `__metadata__`; of shards, the union (the first file wins where they differ).
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::vector<std::string> files() const;

  bool contains(const std::string& name) const { return index_.contains(name); }
  // Throws Error that suggests the nearest name.
  const SafetensorsEntry& find(const std::string& name) const;
  // The tensor's bytes on the host. F64 is rounded to f32, BOOL becomes u8 of 0 and 1; the dtypes
  // for which find().dtype is empty are an Error.
  Tensor load(const std::string& name) const;
  Tensor load(const SafetensorsEntry& entry) const;
  // The tensor's bytes from `at` on, as the file has them. Any number of threads may read at a
  // time.
  void read(const SafetensorsEntry& entry, int64_t at, std::span<uint8_t> out) const;
  // True: the file's bytes are those of the tensor that load() gives.
  static bool as_stored(const SafetensorsEntry& entry);
  // The tensor in a read-only mapping of the file (see ReadFile::map); undefined where the file's
  // bytes are not the tensor's, are not aligned as its elements must be, or cannot be mapped.
  Tensor map(const SafetensorsEntry& entry) const;

 private:
  struct Shard;
  void add(ReadFile file);
  void add(std::shared_ptr<const Shard> shard, std::vector<SafetensorsEntry> entries);
  static SafetensorsFile open_index(const std::string& path);

  std::vector<std::shared_ptr<const Shard>> shards_;
  std::vector<SafetensorsEntry> entries_;
  std::unordered_map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the host
};

// Writes the tensors in the order given, the data 8-byte aligned, through `<path>.tmp-<pid>` and a
// rename: on any Error (no space, no permission, bad names) the old file is left whole.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace ebb::io
