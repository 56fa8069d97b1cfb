#include "functions/inlined.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "ops/prim/matmul/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "passes/uses.h"

namespace ebb::functions {
namespace {

bool is_cast(const Graph& g, const Node& n) {
  if (n.op != &ops::def::pointwise() || n.in.size() != 1) return false;
  const Scalar same[] = {Scalar::input(0)};
  return n.attrs.as<ops::Pointwise>().expr == Expr(1, same) &&
         g.type(n.in[0]).shape == g.type(n.out[0]).shape;
}

// Statistics are f32 whatever they are made of: a copy in f32 would be made for them alone.
int32_t uncast(const Graph& g, int32_t v) {
  const int32_t at = g.producer(v);
  if (at < 0) return v;
  const Node& n = g.nodes()[static_cast<size_t>(at)];
  const bool widens = is_cast(g, n) && is_float(g.type(n.in[0]).dtype) &&
                      size_of(g.type(n.in[0]).dtype) < size_of(DType::f32);
  return widens && g.type(v).dtype == DType::f32 ? n.in[0] : v;
}

// A cast to its type of an output that is a vector, which is cast with others.
bool to_output(const Graph& g, const Uses& uses, const Node& n) {
  const std::set<size_t>& readers = uses.readers(n.out[0]);
  return g.type(n.out[0]).shape.rank() == 1 && g.type(n.in[0]).dtype == DType::f32 &&
         readers.size() == 1 && *readers.begin() == g.nodes().size();
}

// The node of an output's value, seen through reshapes and casts, if nothing else reads what lies
// between.
const Node* maker_of(const Graph& g, const Uses& uses, int32_t v) {
  const Node* n = uses.single_use_producer(v);
  while (n != nullptr && (n->op->name == "reshape" || is_cast(g, *n)))
    n = uses.single_use_producer(n->in[0]);
  return n;
}

bool is_over_one_row(const Graph& g, const Node& n) {
  if (n.op != &ops::def::reduce() || n.attrs.as<ops::Reduce>().scale != 1) return false;
  const Shape& shape = g.type(n.out[0]).shape;  // with sizes of 1
  const int64_t numel = Shape(n.attrs.as<ops::Reduce>().shape).numel();
  return numel <= shape.numel() && std::ranges::all_of(n.in, [&](int32_t v) {
           return broadcastable(g.type(v).shape, shape);
         });
}

// What is computed in f32 and output in a narrower dtype, and these: products, and sums of one row.
std::map<const Node*, DType> rounded_nodes(const Graph& g, const Uses& uses,
                                           std::span<const DType> dtypes) {
  std::map<const Node*, DType> found;
  for (size_t k = 0; k < dtypes.size(); ++k) {
    const int32_t v = g.outputs()[k].value;
    const Node* n = maker_of(g, uses, v);
    if (n == nullptr || g.type(n->out[0]).dtype != DType::f32) continue;
    if (g.type(v).dtype != DType::f32 && g.type(v).dtype != dtypes[k]) continue;
    const bool is_product = n->op == &ops::def::matmul() && g.type(n->in[0]).dtype == dtypes[k] &&
                            g.type(n->out[0]).shape.numel() == g.type(v).shape.numel();
    if (is_product || (is_over_one_row(g, *n) && n->out.size() == 1)) found.emplace(n, dtypes[k]);
  }
  return found;
}

Attrs rounded_to(const Attrs& product, DType dtype) {
  ops::Matmul attrs = product.as<ops::Matmul>();
  attrs.dtype = name_of(dtype);
  return Attrs(std::move(attrs));
}

Attrs not_summed(const Attrs& sum, DType dtype) {
  const auto& reduce = sum.as<ops::Reduce>();
  return Attrs(ops::Pointwise{
      .expr = reduce.expr, .shape = reduce.shape, .dtypes = std::string(name_of(dtype))});
}

// In one pass the gradients of vectors, as of a norm's weight and bias, that are of one type.
void cast_together(Graph& g, std::vector<Value>& values, std::span<const DType> dtypes) {
  for (size_t k = 0; k < values.size(); ++k) {
    if (values[k].dtype() == dtypes[k]) continue;
    std::vector<size_t> alike;
    for (size_t i = k; i < values.size() && values[k].shape().rank() == 1; ++i)
      if (values[i].type() == values[k].type() && dtypes[i] == dtypes[k]) alike.push_back(i);
    std::vector<Value> in;
    std::vector<Scalar> same;
    for (const size_t i : alike) {
      in.push_back(values[i]);
      same.push_back(Scalar::input(std::ssize(same)));
    }
    if (alike.size() < 2) {
      values[k] = ops::cast(values[k], dtypes[k]);
      continue;
    }
    const std::vector<Value> out =
        g.add(ops::def::pointwise(),
              Attrs(ops::Pointwise{.expr = Expr(std::ssize(in), same),
                                   .shape = {},
                                   .dtypes = std::string(name_of(dtypes[k]))}),
              in);
    for (size_t i = 0; i < out.size(); ++i) values[alike[i]] = out[i];
  }
}

}  // namespace

std::vector<Value> inlined(const Graph& from, Graph& into, std::span<const Value> sources,
                           std::span<const DType> dtypes) {
  std::vector<Value> of(static_cast<size_t>(from.values()));
  for (size_t i = 0; i < sources.size(); ++i)
    of[static_cast<size_t>(from.sources()[i].value)] = sources[i];
  const Uses uses(from);
  const std::map<const Node*, DType> rounded = rounded_nodes(from, uses, dtypes);
  for (const Node& n : from.nodes()) {
    std::vector<Value> in, out;
    for (const int32_t v : n.in) in.push_back(of[static_cast<size_t>(v)]);
    const auto it = rounded.find(&n);
    if (n.op == &ops::def::moments()) in[0] = of[static_cast<size_t>(uncast(from, n.in[0]))];
    if (is_over_one_row(from, n))
      out = into.add(ops::def::pointwise(),
                     not_summed(n.attrs, it == rounded.end() ? DType::f32 : it->second), in);
    else if (is_cast(from, n))
      out = {to_output(from, uses, n) ? in[0] : ops::cast(in[0], from.type(n.out[0]).dtype)};
    else
      out = into.add(*n.op, it == rounded.end() ? n.attrs : rounded_to(n.attrs, it->second), in);
    for (size_t k = 0; k < out.size(); ++k) of[static_cast<size_t>(n.out[k])] = out[k];
  }
  std::vector<Value> outputs;
  for (const NamedValue& o : from.outputs()) outputs.push_back(of[static_cast<size_t>(o.value)]);
  cast_together(into, outputs, dtypes);
  return outputs;
}

}  // namespace ebb::functions
