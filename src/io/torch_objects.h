// Tensors in the object that torch.save has pickled.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>

#include "io/pickle.h"
#include "io/tensor_header.h"

namespace ebb::io {

// Where the file has them, by key: begin and end in bytes.
using TorchStorages = std::unordered_map<std::string, std::pair<int64_t, int64_t>>;

// What a persistent id says.
struct TorchStorage {
  std::string key;
  std::string_view dtype;  // as safetensors name it
  int64_t element = 0;     // bytes
  int64_t first = 0;       // element of the storage that a view begins with
};
// Throws Error.
TorchStorage torch_storage(const Pickle& pickle, const PickleNode& id, const std::string& file);

// The tensors of the object, by their path in it with dots between; a dict of weights that stands
// in it under a usual name ("state_dict", "params_ema", ...) stands for the whole. Throws Error
// "torch: <rule> (<numbers>)  <file>".
TensorHeader torch_tensors(const Pickle& pickle, const TorchStorages& storages,
                           const std::string& file, const TensorFileOptions& options);

}  // namespace ebb::io
