// The tensors of a call: read off torch's stack, and described for a library of functions.
#pragma once

#include "base/inline_vector.h"
#include "functions/library.h"
#include "torch/devices.h"
#include "torch/handles.h"

namespace ebb::torch {

// A new dense tensor.
OwnedTensor empty(std::span<const int64_t> sizes, int32_t dtype, const TorchDevice& device);
void* data_of(TensorHandle t);

// In the order of the function, absent ones with them.
class Operands {
 public:
  // Takes the function's operands, which begin at `stack`. Throws Error: dtypes and devices that
  // are not served, and what is overwritten and not dense.
  Operands(const functions::Function& f, const StackValue* stack);

  const TorchDevice& device() const { return device_; }
  std::span<const functions::TensorRef> refs() const { return refs_; }
  void copy(size_t i);  // makes it dense, at an address of the allocator's

 private:
  void take(functions::Operand::Kind kind, StackValue v);
  void take_list(StackValue v);
  void find_device(size_t i, bool first);
  std::string name(size_t i) const;
  functions::TensorRef ref(size_t i) const;
  void require_dense(size_t i) const;

  const functions::Function& f_;
  OwnedTensors tensors_;
  InlineVector<functions::TensorRef, most_without_allocation> refs_;
  TorchDevice device_;
};

}  // namespace ebb::torch
