// Function: what ebb computes for programs of others, a graph made for the types and attributes of
// a call. One file each in table/; schemas, gradients and the calls from C and PyTorch follow from
// these definitions.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/fields.h"
#include "ir/graph.h"

namespace ebb::functions {

struct Operand {
  enum class Kind : uint8_t { tensor, optional, list };  // a list stands last
  std::string name;
  Kind kind = Kind::tensor;
};

using AttributeValue = std::variant<int64_t, double, bool, std::string>;

struct Attribute {
  std::string name;
  AttributeValue value;  // the default, of the attribute's type
};

// What a use of a function is made of. Values of optional operands that are absent have no graph;
// those of a list follow the other operands.
struct Use {
  Graph& graph;
  std::span<const Value> in;
  Attrs attrs;
  template <class A>
  const A& as() const {
    return attrs.as<A>();
  }
};

struct Function {
  std::string name;
  std::vector<Operand> operands;
  std::vector<std::string> results;  // empty: a list of as many as build() gives
  std::vector<Attribute> attributes;
  std::function<Attrs(std::span<const AttributeValue>)> attrs;  // in the order of `attributes`
  // The results, with a graph each. Throws Error for types and attributes that do not fit.
  std::function<std::vector<Value>(const Use&)> build;
  // Gradients of all operands from the results and their gradients, which may have no graph, as
  // gradients of fixed operands have none. Empty: build()'s graph is differentiated, which computes
  // again what the gradients need.
  std::function<std::vector<Value>(const Use&, std::span<const Value> results,
                                   std::span<const Value> grads)>
      gradient;
  // The bits of operands whose gradient is that of the one result, for the same types. Empty: none.
  std::function<int64_t(std::span<const AttributeValue>)> same_gradient;
  // As many first operands are overwritten by the results, and no others are given. Such functions
  // are one elementwise op, and have no gradients.
  size_t in_place = 0;
  bool has_backward = false;  // it is followed by its gradients
};

// All functions; one that has gradients is followed by its "<name>_backward": see
// functions/backward.h.
std::span<const Function> all_functions();
const Function& find_function(std::string_view name);  // throws Error with the nearest name

// "rms_norm(Tensor x, Tensor? weight, float eps=1e-06) -> Tensor", as torch.library takes it.
std::string schema(const Function& f);

// "rms_norm_numbered(Tensor x, Tensor? weight, int attributes) -> Tensor": the same with a number
// for the attributes (functions/attributes.h). For functions that have gradients; else "".
std::string numbered_schema(const Function& f);
std::string numbered_name(const Function& f);

// ---- defining one -----------------------------------------------------------------------------

// {"x", "weight?", "inputs..."}
std::vector<Operand> operands(std::initializer_list<std::string_view> names);

Attribute attribute_of(const Field& field);
// Throws Error "FUNCTION: ..." for values that the fields do not take.
void set_fields(std::string_view function, const std::vector<Field>& fields,
                std::span<const AttributeValue> values);

// Attributes that are the fields of `A`: its attributes and attrs.
template <class A>
void take_fields(Function& f) {
  A defaults;
  for (const Field& field : fields_of(defaults)) f.attributes.push_back(attribute_of(field));
  f.attrs = [name = f.name](std::span<const AttributeValue> values) {
    A a;
    set_fields(name, fields_of(a), values);
    return Attrs(std::move(a));
  };
}
template <class A>
Function define(std::string_view name, std::initializer_list<std::string_view> operand_names,
                std::initializer_list<std::string_view> results,
                std::vector<Value> (*build)(const Use&)) {
  Function f;
  f.name = name;
  f.operands = operands(operand_names);
  f.results.assign(results.begin(), results.end());
  f.build = build;
  take_fields<A>(f);
  return f;
}

}  // namespace ebb::functions
