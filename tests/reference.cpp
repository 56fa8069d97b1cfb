#include "reference.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::test {
namespace {

// The reference of a composite op: its decomposition, run in a graph of its own.
std::vector<RefArray> decomposed(const Signature& s, std::span<const RefArray> in,
                                 const AfterNode& after) {
  Graph g;
  RefInputs inputs;
  std::vector<Value> x;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const std::string name = str("x", i);
    x.push_back(g.input(name, s.in[i]));
    inputs[name] = in[i];
  }
  const std::vector<Value> y = s.op->decompose(g, s, x);
  const std::vector<RefArray> values = evaluate_reference(g, inputs, after);
  std::vector<RefArray> out;
  for (const Value& v : y) out.push_back(values[static_cast<size_t>(v.id)]);
  return out;
}

void run_expression(const Expr& f, std::span<const RefArray> in, std::span<RefArray> out) {
  const Signature s{&ops::def::pointwise(), ops::Pointwise{.expr = f}, {}, {}, ""};
  s.op->reference(s, in, out);
}

}  // namespace

std::vector<RefArray> evaluate_reference(const Signature& sig, std::span<const RefArray> in,
                                         const AfterNode& after) {
  Signature s = sig;
  s.out.clear();
  const std::vector<Type> types = s.op->infer(s);
  s.out = types;
  std::vector<RefArray> out;
  for (const Type& t : types)
    out.push_back({t.shape, std::vector<double>(static_cast<size_t>(t.shape.numel()))});
  if (s.op->reference || s.op->expr) {
    s.op->reference ? s.op->reference(s, in, out) : run_expression(expression_of(s), in, out);
    if (after)
      for (RefArray& a : out) after(a);
    return out;
  }
  require(s.op->decompose != nullptr, s.op->name,
          ": has no semantics (no reference, expression or "
          "decomposition)");
  out = decomposed(s, in, after);
  require(out.size() == types.size(), s.op->name, ": decomposes to ", out.size(), " results (",
          types.size(), " by its rule)");
  for (size_t i = 0; i < out.size(); ++i)
    require(out[i].shape == types[i].shape, s.op->name, ": decomposes to shape ", out[i].shape,
            " (", types[i].shape, " by its rule)");
  return out;
}

std::vector<RefArray> evaluate_reference(const Graph& g, const RefInputs& inputs,
                                         const AfterNode& after) {
  std::vector<RefArray> values(static_cast<size_t>(g.values()));
  for (const Source& s : g.sources()) {
    const auto it = inputs.find(s.name);
    require(it != inputs.end(), "reference: no values for source '", s.name, "'");
    const Shape& shape = g.type(s.value).shape;
    require(it->second.shape == shape && static_cast<int64_t>(it->second.v.size()) == shape.numel(),
            "reference: source '", s.name, "' needs shape ", shape, " (got ", it->second.shape,
            ")");
    values[static_cast<size_t>(s.value)] = it->second;
  }
  for (const Node& n : g.nodes()) {
    std::vector<RefArray> in;
    for (const int32_t v : n.in) in.push_back(values[static_cast<size_t>(v)]);
    std::vector<RefArray> out = evaluate_reference(g.signature(n), in, after);
    for (size_t i = 0; i < out.size(); ++i)
      values[static_cast<size_t>(n.out[i])] = std::move(out[i]);
  }
  return values;
}

const RefArray& output_of(const Graph& g, const std::vector<RefArray>& values,
                          std::string_view name) {
  for (const NamedValue& o : g.outputs())
    if (o.name == name) return values[static_cast<size_t>(o.value)];
  fail("reference: no output '", name, "'");
}

namespace {

template <class T>
double to_double(T v) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>)
    return static_cast<double>(static_cast<float>(v));
  else
    return static_cast<double>(v);
}

}  // namespace

RefArray ref_array(const Tensor& t) {
  RefArray a{t.shape(), {}};
  visit_dtype(t.dtype(), [&](auto zero) {
    for (const auto v : t.span<decltype(zero)>()) a.v.push_back(to_double(v));
  });
  return a;
}

RefArray ref_array(Shape shape, std::vector<double> v) {
  require(static_cast<int64_t>(v.size()) == shape.numel(), "reference: ", shape,
          " needs another number of values (", v.size(), ")");
  return {std::move(shape), std::move(v)};
}

double rounded(double x, DType dtype) {
  if (!is_float(dtype)) return x;
  const auto f = static_cast<float>(x);
  if (dtype == DType::bf16) return static_cast<float>(bf16(f));
  if (dtype == DType::f16) return static_cast<float>(f16(f));
  return f;
}

}  // namespace ebb::test
