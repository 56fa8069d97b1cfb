// Entry points of components as plans: text encoders, autoencoders (models/model.h).
#pragma once

#include <memory>
#include <string>

#include "io/tensor_file.h"
#include "models/model.h"
#include "passes/contractions/circular_padding.h"
#include "runtime/plan.h"
#include "runtime/weight_store.h"

namespace ebb {

// Completes the config of a component by what the file says beside shapes (Model::examine). Throws
// Error.
void examine(Component& component, const io::TensorFile& file);
// Throws the Error of open_component() on names and shapes of tensors; reads none.
void check_tensors(const Component& component, const io::TensorFile& file);
// The weights of a component in an open file, checked as open_model_weights() does. Where its
// prefix is that of a file of several, what else is there is not looked at. Throws Error.
std::shared_ptr<WeightStore> open_component(std::shared_ptr<const io::TensorFile> file,
                                            const std::string& path, const Component& component);
// The same of a file that is not open yet.
std::shared_ptr<WeightStore> open_component(const std::string& path, const Component& component);

// The dtype of matmuls and convolutions of an entry point where a run asks for `asked`: f16 only
// where its activations fit, else bf16, or f32 on devices that are not fast in bf16.
DType compute_dtype(const EntryPoint& entry, DType asked, const Device& device);

// Run by plan.run({{input, tensor}, ...}); outputs are f32. Throws Error.
Plan entry_plan(const Component& component, const EntryCall& call, DType asked,
                std::shared_ptr<WeightStore> weights, const Context& context,
                CircularAxes tiling = {});

}  // namespace ebb
