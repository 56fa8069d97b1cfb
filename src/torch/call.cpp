#include "torch/call.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "torch/devices.h"
#include "torch/handles.h"

namespace ebb::torch {
namespace {

using functions::AttributeValue;
using functions::Function;
using functions::Operand;
using functions::Prepared;
using functions::TensorRef;

// The arguments of a call: operands in the function's order, null where they are absent.
struct Arguments {
  std::vector<OwnedTensor> operands;
  std::vector<AttributeValue> attributes;
};

void take_list(StackValue v, std::vector<OwnedTensor>& to) {
  const OwnedList list(as<ListHandle>(v));
  size_t size = 0;
  check(shim().list_size(list.get(), &size), "reading a list");
  for (size_t i = 0; i < size; ++i) {
    StackValue item = 0;
    check(shim().list_item(list.get(), i, &item), "reading a list");
    to.emplace_back(as<TensorHandle>(item));
  }
}

void take_operand(Operand::Kind kind, StackValue v, std::vector<OwnedTensor>& to) {
  if (kind == Operand::Kind::list) return take_list(v, to);
  if (kind == Operand::Kind::tensor) {
    to.emplace_back(as<TensorHandle>(v));
    return;
  }
  auto* cell = as<StackValue*>(v);
  to.emplace_back(cell != nullptr ? as<TensorHandle>(*cell) : nullptr);
  delete cell;
}

struct TakeAttribute {
  StackValue v;
  AttributeValue operator()(int64_t) const { return as<int64_t>(v); }
  AttributeValue operator()(double) const { return as<double>(v); }
  AttributeValue operator()(bool) const { return as<bool>(v); }
  AttributeValue operator()(const std::string&) const {
    const OwnedString text(as<StringHandle>(v));
    size_t length = 0;
    const char* data = nullptr;
    check(shim().string_length(text.get(), &length), "reading a string");
    check(shim().string_text(text.get(), &data), "reading a string");
    return std::string(data, length);
  }
};

Arguments taken(const Function& f, const StackValue* stack) {
  Arguments out;
  out.operands.reserve(f.operands.size());
  out.attributes.reserve(f.attributes.size());
  for (const Operand& o : f.operands) take_operand(o.kind, *stack++, out.operands);
  for (const functions::Attribute& a : f.attributes)
    out.attributes.push_back(std::visit(TakeAttribute{*stack++}, a.value));
  return out;
}

// ---- tensors ----------------------------------------------------------------------------------

std::string operand_name(const Function& f, size_t i) {
  return i < f.operands.size() && f.operands[i].kind != Operand::Kind::list
             ? f.operands[i].name
             : str(f.operands.back().name, "[", i + 1 - f.operands.size(), "]");
}

TensorRef ref(TensorHandle t, const Function& f, size_t i) {
  TensorRef out;
  if (t == nullptr) return out;
  int64_t rank = 0, *sizes = nullptr, *strides = nullptr;
  int32_t dtype = 0;
  check(shim().get_data_ptr(t, &out.data), "reading a tensor");
  check(shim().get_dim(t, &rank), "reading a tensor");
  check(shim().get_sizes(t, &sizes), "reading a tensor");
  check(shim().get_strides(t, &strides), "reading a tensor");
  check(shim().get_dtype(t, &dtype), "reading a tensor");
  const std::optional<DType> known = dtype_of_code(dtype);
  require(known.has_value(), "ebb_kernels: ", f.name, ": '", operand_name(f, i),
          "' must be float32, bfloat16 or float16");
  out.dtype = *known;
  out.present = true;
  out.sizes = {sizes, static_cast<size_t>(rank)};
  out.strides = {strides, static_cast<size_t>(rank)};
  return out;
}

OwnedTensor empty(std::span<const int64_t> sizes, int32_t dtype, const TorchDevice& device) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  TensorHandle out = nullptr;
  check(shim().empty_strided(static_cast<int64_t>(sizes.size()), sizes.data(), strides.data(),
                             dtype, device.type, device.index, &out),
        "allocating a tensor");
  return OwnedTensor(out);
}

void make_dense(OwnedTensor& t, const TensorRef& r, const TorchDevice& device) {
  OwnedTensor copy = empty(r.sizes, code_of(r.dtype), device);
  check(shim().copy(copy.get(), t.get(), 1), "copying a tensor");
  t = std::move(copy);
}

class Operands {
 public:
  Operands(const Function& f, std::vector<OwnedTensor>& tensors)
      : f_(f), tensors_(tensors), device_(device_of(f, tensors)) {
    refs_.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      refs_.push_back(ref(tensors[i].get(), f, i));
      const auto past = reinterpret_cast<uintptr_t>(refs_[i].data) % Signature::alignment;
      if (past != 0) copy(i);
    }
  }
  void copy(size_t i) {
    make_dense(tensors_[i], refs_[i], device_);
    refs_[i] = ref(tensors_[i].get(), f_, i);
  }
  const TorchDevice& device() const { return device_; }
  std::span<const TensorRef> refs() const { return refs_; }

 private:
  static TorchDevice device_of(const Function& f, std::span<const OwnedTensor> tensors) {
    std::optional<TorchDevice> out;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i]) continue;
      const TorchDevice d = TorchDevice::of(tensors[i].get());
      if (!out) out = d;
      require(d == *out, "ebb_kernels: ", f.name, ": '", operand_name(f, i),
              "' is on another device (", d.text(), ") than the operands before it (", out->text(),
              ")");
    }
    require(out.has_value(), "ebb_kernels: ", f.name, " needs a tensor");
    return *out;
  }

  const Function& f_;
  std::vector<OwnedTensor>& tensors_;
  TorchDevice device_;
  std::vector<TensorRef> refs_;
};

// ---- results ----------------------------------------------------------------------------------

std::vector<OwnedTensor> allocated(const Prepared& p, const TorchDevice& device) {
  std::vector<OwnedTensor> out;
  for (const Type& t : p.results()) {
    out.push_back(empty(t.shape.sizes(), code_of(t.dtype), device));
    if (p.empty()) check(shim().zero(out.back().get()), "writing zeros");
  }
  return out;
}

void give(const Function& f, std::vector<OwnedTensor>& results, StackValue* stack) {
  if (!f.results.empty()) {
    for (OwnedTensor& r : results) *stack++ = stack_value(r.release());
    return;
  }
  ListHandle list = nullptr;
  check(shim().new_list(results.size(), &list), "making a list");
  for (OwnedTensor& r : results)
    check(shim().list_push_back(list, stack_value(r.release())), "making a list");
  *stack = stack_value(list);
}

// What is overwritten must be the tensor itself, dense.
void require_dense(const Function& f, size_t i, const TensorRef& t) {
  int64_t stride = 1;
  bool dense = reinterpret_cast<uintptr_t>(t.data) % Signature::alignment == 0;
  for (size_t d = t.sizes.size(); d-- > 0;) {
    dense = dense && (t.sizes[d] == 1 || t.strides[d] == stride);
    stride *= t.sizes[d];
  }
  require(dense, "ebb_kernels: ", f.name, ": '", operand_name(f, i),
          "' is overwritten and must be contiguous, at a multiple of ", Signature::alignment,
          " bytes");
}

void* data_of(TensorHandle t) {
  void* out = nullptr;
  check(shim().get_data_ptr(t, &out), "reading a tensor");
  return out;
}

}  // namespace

void call(const Function& f, StackValue* stack) {
  Arguments arguments = taken(f, stack);
  for (size_t i = 0; i < f.in_place; ++i)
    require_dense(f, i, ref(arguments.operands[i].get(), f, i));
  Operands operands(f, arguments.operands);
  const TorchDevice device = operands.device();
  const Prepared& p = library_of(device).prepare(f, operands.refs(), arguments.attributes);
  std::vector<void*> in, out;
  in.reserve(operands.refs().size());
  out.reserve(p.results().size());
  for (size_t i = 0; i < operands.refs().size(); ++i) {
    if (p.wants_copy(i)) operands.copy(i);
    in.push_back(operands.refs()[i].data);
  }
  std::vector<OwnedTensor> results;
  if (f.in_place == 0) results = allocated(p, device);
  for (const OwnedTensor& r : results) out.push_back(data_of(r.get()));
  for (size_t i = 0; i < f.in_place; ++i) out.push_back(in[i]);
  OwnedTensor workspace;
  if (p.workspace_bytes() > 0) {
    const int64_t size[] = {p.workspace_bytes() / size_of(DType::f32) + 1};
    workspace = empty(size, code_of(DType::f32), device);
  }
  p.run(in, out, workspace ? data_of(workspace.get()) : nullptr, device.stream());
  give(f, results, stack);
}

}  // namespace ebb::torch
