#include "torch/call.h"

#include <string>

#include "base/error.h"
#include "torch/operands.h"

namespace ebb::torch {
namespace {

using functions::Attributes;
using functions::AttributeValue;
using functions::Function;
using functions::Prepared;

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

Attributes taken(const Function& f, const StackValue* stack) {
  std::vector<AttributeValue> values;
  values.reserve(f.attributes.size());
  for (const functions::Attribute& a : f.attributes)
    values.push_back(std::visit(TakeAttribute{*stack++}, a.value));
  return Attributes(std::move(values));
}

// The new tensors of a call, until torch has them.
class Results {
 public:
  Results(const Prepared& p, const TorchDevice& device) {
    for (const Type& t : p.results()) {
      OwnedTensor result = empty(t.shape.sizes(), code_of(t.dtype), device);
      if (p.empty()) check(shim().zero(result.get()), "writing zeros");
      all_.push_back(std::move(result));
    }
  }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

  void give(const Function& f, StackValue* stack) {
    const auto taken = [&](size_t i) { return stack_value(all_.exchange(i, {}).release()); };
    if (!f.results.empty()) {
      for (size_t i = 0; i < all_.size(); ++i) *stack++ = taken(i);
      return;
    }
    ListHandle made = nullptr;
    check(shim().new_list(all_.size(), &made), "making a list");
    OwnedList list(made);
    for (size_t i = 0; i < all_.size(); ++i)
      check(shim().list_push_back(list.get(), taken(i)), "making a list");
    *stack = stack_value(list.release());
  }

 private:
  OwnedTensors all_;
};

void compute(const Function& f, Operands& operands, const Attributes& attributes,
             StackValue* stack) {
  const TorchDevice device = operands.device();
  const auto p = library_of(device).prepare(f, operands.refs(), attributes);
  InlineVector<void*, most_without_allocation> in, out;
  for (size_t i = 0; i < operands.refs().size(); ++i) {
    if (p->wants_copy(i)) operands.copy(i);
    in.push_back(operands.refs()[i].data);
  }
  std::optional<Results> results;
  if (f.in_place == 0) {
    results.emplace(*p, device);
    for (const TensorHandle t : *results) out.push_back(data_of(t));
  }
  for (size_t i = 0; i < f.in_place; ++i) out.push_back(in[i]);
  OwnedTensor workspace;
  if (p->workspace_bytes() > 0) {
    const int64_t size[] = {p->workspace_bytes() / size_of(DType::f32) + 1};
    workspace = empty(size, code_of(DType::f32), device);
  }
  void* const stream = device.stream();
  if (!p->recorded() && device.records(stream)) p->set_recorded();
  p->run(in, out, workspace ? data_of(workspace.get()) : nullptr, stream);
  if (results) results->give(f, stack);
}

}  // namespace

void call(const Function& f, StackValue* stack) {
  // what is taken off the stack is ours, whatever fails
  const Attributes attributes = taken(f, stack + f.operands.size());
  Operands operands(f, stack);
  compute(f, operands, attributes, stack);
}

void call_numbered(const Function& f, StackValue* stack) {
  const auto number = as<int64_t>(stack[f.operands.size()]);
  Operands operands(f, stack);
  compute(f, operands, functions::attributes_of(f, number), stack);
}

}  // namespace ebb::torch
