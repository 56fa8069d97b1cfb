// The weights in a model file: loaded for training, or opened for plans that sample.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "io/safetensors.h"
#include "nn/weights.h"
#include "runtime/plan.h"
#include "runtime/weight_store.h"

namespace ebb::train {

// Where a file has the tensors of a network, and which it has no use for.
struct TensorNames {
  std::string prefix = {};
  std::function<bool(std::string_view)> ignored = {};  // names without the prefix
  nn::FilePlaces places = {};                          // as nn::FileTensors has them
  bool alone = true;                                   // no other component's tensors are there
};

// Of all tensors of a file, under the names that it has for them.
nn::FileShapes shapes_of(const io::TensorFile& file);

// Every weight of a model file in f32, in the network's layout. Binding is total, as
// match_weights(); weights that are not finite, or larger than the machine's free memory, are an
// Error.
NamedTensors load_model_weights(const std::string& file, const nn::Weights& weights,
                                const TensorNames& names = {});

// Called with the bytes that are done, of all, from several threads but one at a time.
using ByteProgress = std::function<void(int64_t done, int64_t all)>;

// The same as they lie in the file, for plans. The file is read through once, to see that its
// weights are finite; then they are in the system's cache when a device asks for them.
std::shared_ptr<WeightStore> open_model_weights(std::shared_ptr<const io::TensorFile> file,
                                                const std::string& path, const nn::Weights& weights,
                                                const TensorNames& names = {},
                                                const ByteProgress& progress = {});
std::shared_ptr<WeightStore> open_model_weights(const std::string& file, const nn::Weights& weights,
                                                const TensorNames& names = {},
                                                const ByteProgress& progress = {});

// Weights of no file, as f32 files have them: for plans that are looked at and not run.
std::shared_ptr<WeightStore> described_weights(const nn::Weights& weights);

// "w has nan as element 7" of the first element that is not finite; "" if all are.
std::string not_finite_in(const std::string& name, const Tensor& t);
void check_finite(const std::string& name, const Tensor& t, const std::string& path);
// In this dtype. Throws Error, which begins with `subject`, for finite numbers that it does not
// hold.
Tensor rounded(const std::string& name, const Tensor& t, DType dtype, std::string_view subject);
// Bytes of `copies` of every trained weight, and one of every other, in f32.
int64_t host_bytes(const nn::Weights& weights, int64_t copies);
// Throws Error unless these fit into the machine's free memory; `what`: of whom, what these are.
void check_host_memory(int64_t bytes, std::string_view what);

}  // namespace ebb::train
