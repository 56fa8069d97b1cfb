#include "functions/backward.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "passes/gradients.h"

namespace ebb::functions {
namespace {

constexpr size_t most_operands = 63;  // bits of an int

// The attributes of the function, and the bits of the operands whose gradients are wanted.
struct BackwardAttrs {
  Attrs forward;
  int64_t needs = 0;
  void fields(auto&& f) { f("needs", needs); }
  bool needed(size_t operand) const { return ((needs >> operand) & 1) != 0; }
};

// The nodes of `from` in `into`, with `sources` for its own; the values of its outputs.
std::vector<Value> inlined(const Graph& from, Graph& into, std::span<const Value> sources) {
  std::vector<Value> of(static_cast<size_t>(from.values()));
  for (size_t i = 0; i < sources.size(); ++i)
    of[static_cast<size_t>(from.sources()[i].value)] = sources[i];
  for (const Node& n : from.nodes()) {
    std::vector<Value> in;
    for (const int32_t v : n.in) in.push_back(of[static_cast<size_t>(v)]);
    const std::vector<Value> out = into.add(*n.op, n.attrs, in);
    for (size_t k = 0; k < out.size(); ++k) of[static_cast<size_t>(n.out[k])] = out[k];
  }
  std::vector<Value> outputs;
  for (const NamedValue& o : from.outputs()) outputs.push_back(of[static_cast<size_t>(o.value)]);
  return outputs;
}

std::string name_of(const Graph& g, Value source) {
  return std::ranges::find(g.sources(), source.id, &Source::value)->name;
}

// By operand, where it is needed. Differentiates in a graph of its own, whose sources are the
// operands.
std::vector<Value> derived(const Function& f, const Use& use, std::span<const Value> grads,
                           const BackwardAttrs& attrs) {
  Graph inner;
  std::vector<Value> outside;
  const auto sources = [&](std::span<const Value> values) {
    std::vector<Value> out;
    for (const Value& v : values) {
      out.push_back(v ? inner.input(str("x", outside.size()), v.type()) : Value{});
      if (v) outside.push_back(v);
    }
    return out;
  };
  const std::vector<Value> in = sources(use.in), dy = sources(grads);
  std::vector<std::string> wanted;
  for (size_t i = 0, k = 0; i < in.size(); ++i) {
    if (!in[i]) continue;
    if (attrs.needed(i)) wanted.push_back(inner.sources()[k].name);
    ++k;
  }
  const std::vector<Value> y = f.build({inner, in, attrs.forward});
  std::vector<WeightedOutput> outputs;
  for (size_t k = 0; k < y.size(); ++k) {
    if (!dy[k]) continue;
    outputs.push_back({str("y", k), name_of(inner, dy[k])});
    inner.output(outputs.back().output, y[k]);
  }
  require(!outputs.empty(), f.name, "_backward: no gradient of a result is given");
  const Graph all = gradients(inner, outputs, wanted);
  const std::vector<Value> found = inlined(all, use.graph, outside);
  std::vector<Value> out(in.size());
  for (size_t i = 0, k = 0; i < in.size(); ++i)
    if (in[i] && attrs.needed(i)) out[i] = found[k++];
  return out;
}

std::vector<Value> build(const Function& f, const Use& use) {
  const auto& attrs = use.as<BackwardAttrs>();
  const size_t results = f.results.size(), first = f.gradient ? 2 * results : results;
  const std::span<const Value> grads = use.in.first(results);
  const Use forward{use.graph, use.in.subspan(first), attrs.forward};
  require(forward.in.size() <= most_operands, f.name, ": has gradients for ", most_operands,
          " operands at most (got ", forward.in.size(), ")");
  const std::vector<Value> all = f.gradient
                                     ? f.gradient(forward, use.in.subspan(results, results), grads)
                                     : derived(f, forward, grads, attrs);
  std::vector<Value> out;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!forward.in[i] || !attrs.needed(i)) continue;
    const Operand& operand = f.operands[std::min(i, f.operands.size() - 1)];  // the last: a list
    require(static_cast<bool>(all[i]), f.name, ": there is no gradient for ", operand.name);
    out.push_back(ops::cast(all[i], forward.in[i].dtype()));
  }
  return out;
}

}  // namespace

Function backward(const Function& f) {
  Function b;
  b.name = f.name + "_backward";
  for (const std::string& r : f.results)
    b.operands.push_back({"grad_" + r, Operand::Kind::optional});
  if (f.gradient)
    for (const std::string& r : f.results) b.operands.push_back({r});
  b.operands.insert(b.operands.end(), f.operands.begin(), f.operands.end());
  b.attributes = f.attributes;
  b.attributes.push_back({"needs", int64_t{0}});
  b.attrs = [forward = f.attrs](std::span<const AttributeValue> values) {
    BackwardAttrs a{forward(values.first(values.size() - 1))};
    a.needs = std::get<int64_t>(values.back());
    return Attrs(std::move(a));
  };
  b.build = [f](const Use& use) { return build(f, use); };
  return b;
}

}  // namespace ebb::functions
