#include "torch/operands.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"

namespace ebb::torch {

using functions::Operand;
using functions::TensorRef;

namespace {
bool is_aligned(const TensorRef& t) {
  return reinterpret_cast<uintptr_t>(t.data) % Signature::alignment == 0;
}
}  // namespace

OwnedTensor empty(std::span<const int64_t> sizes, int32_t dtype, const TorchDevice& device) {
  InlineVector<int64_t, 8> strides;
  for (size_t d = 0; d < sizes.size(); ++d) strides.push_back(1);
  for (size_t d = sizes.size(); d-- > 1;)
    strides[d - 1] = strides[d] * std::max<int64_t>(sizes[d], 1);
  TensorHandle out = nullptr;
  check(shim().empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                             dtype, device.type, device.index, &out),
        "allocating a tensor");
  return OwnedTensor(out);
}

void* data_of(TensorHandle t) {
  void* out = nullptr;
  check(shim().get_data_ptr(t, &out), "reading a tensor");
  return out;
}

void Operands::take(Operand::Kind kind, StackValue v) {
  if (kind == Operand::Kind::list) return take_list(v);
  if (kind == Operand::Kind::tensor) return tensors_.push_back(OwnedTensor(as<TensorHandle>(v)));
  const std::unique_ptr<StackValue> cell(as<StackValue*>(v));
  tensors_.push_back(cell ? OwnedTensor(as<TensorHandle>(*cell)) : OwnedTensor());
}

void Operands::take_list(StackValue v) {
  const OwnedList list(as<ListHandle>(v));
  size_t size = 0;
  check(shim().list_size(list.get(), &size), "reading a list");
  for (size_t i = 0; i < size; ++i) {
    StackValue item = 0;
    check(shim().list_item(list.get(), i, &item), "reading a list");
    tensors_.push_back(OwnedTensor(as<TensorHandle>(item)));
  }
}

Operands::Operands(const functions::Function& f, const StackValue* stack) : f_(f) {
  for (const Operand& o : f.operands) take(o.kind, *stack++);
  bool any = false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i] != nullptr) find_device(i, !std::exchange(any, true));
    refs_.push_back(ref(i));
  }
  require(any, "ebb_kernels: ", f.name, " needs a tensor");
  for (size_t i = 0; i < refs_.size(); ++i) {
    if (i < f.in_place) require_dense(i);
    if (!is_aligned(refs_[i])) copy(i);
  }
}

void Operands::copy(size_t i) {
  OwnedTensor dense = empty(refs_[i].sizes, code_of(refs_[i].dtype), device_);
  check(shim().copy(dense.get(), tensors_[i], 1), "copying a tensor");
  tensors_.exchange(i, std::move(dense));
  refs_[i] = ref(i);
}

void Operands::find_device(size_t i, bool first) {
  const TorchDevice d = TorchDevice::of(tensors_[i]);
  if (first) device_ = d;
  if (d == device_) return;  // no text is made for an error that is none
  fail("ebb_kernels: ", f_.name, ": '", name(i), "' is on another device (", d.text(),
       ") than the operands before it (", device_.text(), ")");
}

std::string Operands::name(size_t i) const {
  return i < f_.operands.size() && f_.operands[i].kind != Operand::Kind::list
             ? f_.operands[i].name
             : str(f_.operands.back().name, "[", i + 1 - f_.operands.size(), "]");
}

TensorRef Operands::ref(size_t i) const {
  TensorRef out;
  const TensorHandle t = tensors_[i];
  if (t == nullptr) return out;
  int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
  int32_t dtype = 0;
  out.data = data_of(t);
  check(shim().get_dim(t, &rank), "reading a tensor");
  check(shim().get_sizes(t, &sizes), "reading a tensor");
  check(shim().get_strides(t, &strides), "reading a tensor");
  check(shim().get_dtype(t, &dtype), "reading a tensor");
  const std::optional<DType> known = dtype_of_code(dtype);
  if (!known)
    fail("ebb_kernels: ", f_.name, ": '", name(i), "' must be float32, bfloat16 or float16");
  out.dtype = *known;
  out.present = true;
  out.sizes = {sizes, static_cast<size_t>(rank)};
  out.strides = {strides, static_cast<size_t>(rank)};
  return out;
}

// What is overwritten must be the tensor itself, dense.
void Operands::require_dense(size_t i) const {
  const TensorRef& t = refs_[i];
  int64_t stride = 1;
  bool dense = is_aligned(t);
  for (size_t d = t.sizes.size(); d-- > 0;) {
    dense = dense && (t.sizes[d] == 1 || t.strides[d] == stride);
    stride *= t.sizes[d];
  }
  require(dense, "ebb_kernels: ", f_.name, ": '", name(i),
          "' is overwritten and must be contiguous, at a multiple of ", Signature::alignment,
          " bytes");
}

}  // namespace ebb::torch
