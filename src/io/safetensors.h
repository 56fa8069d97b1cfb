// safetensors files: a JSON header with names, types and byte ranges, then the tensors' bytes.
// TensorFile reads them.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>

#include "io/file.h"
#include "io/tensor_file.h"

namespace ebb::io {

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the host
};

// Writes the tensors in the order given, the data 8-byte aligned, through a temporary file beside
// it and a rename: on any Error (no space, no permission, bad names) the old file is left whole.
void write_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {},
                       Existing existing = Existing::replaced);

using ByteSink = std::function<void(std::span<const uint8_t>)>;

// A tensor that is made when its turn comes, so that a file may be larger than the memory.
struct TensorToWrite {
  std::string name;
  std::string file_dtype;  // "F16"
  Shape shape;
  std::function<void(const ByteSink&)> data;  // gives all of its bytes, in parts
};
// The same. Throws Error, too, for data of another size.
void stream_safetensors(const std::string& path, std::span<const TensorToWrite> tensors,
                        const std::map<std::string, std::string>& metadata = {},
                        Existing existing = Existing::replaced);

}  // namespace ebb::io
