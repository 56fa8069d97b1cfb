#include "ops/rope/op.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/prim/swaps.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 3 && s.in[0].shape.rank() >= 3 && is_float(s.in[0].dtype),
          "rope: takes floats x [N,T,...,D], cos and sin (got ", s.in.size(), " inputs)  at ",
          s.at);
  const Type &x = s.in[0], &cos = s.in[1], &sin = s.in[2];
  const auto end = [&] { return str("  x: ", x, "  cos: ", cos, "  sin: ", sin, "  at ", s.at); };
  require(cos == sin && is_float(cos.dtype), "rope: cos and sin must be floats of one type", end());
  const Shape& table = cos.shape;
  const bool by_sample = table.rank() == 3 && (table[0] == 1 || table[0] == x.shape[0]);
  require((table.rank() == 2 || by_sample) && table[-2] == x.shape[1],
          "rope: cos and sin must be [T,P] or [N,T,P] with N ", x.shape[0], " or 1 and T ",
          x.shape[1], end());
  require(table[-1] > 0 && 2 * table[-1] <= x.shape[-1],
          "rope: 1 to D / 2 pairs fit into a head (D ", x.shape[-1], ", pairs ", table[-1], ")",
          end());
  return {x};
}

// How a last dim is made of pairs.
struct Pairs {
  int64_t count = 0;  // 2 * count elements; the rest follows
  bool half_split = false;
};

Pairs pairs_of(const Signature& s) { return {s.in[1].shape[-1], s.as<Rope>().half_split}; }

Shape with_last(Shape s, std::initializer_list<int64_t> dims) {
  std::vector<int64_t> sizes(s.sizes().begin(), s.sizes().end() - 1);
  sizes.insert(sizes.end(), dims);
  return Shape(sizes);
}

// The first and the second element of each pair, [...,P].
std::pair<Value, Value> split_pairs(Value x, const Pairs& p) {
  if (p.half_split) return {slice(x, -1, 0, p.count), slice(x, -1, p.count, 2 * p.count)};
  const Value both = reshape(slice(x, -1, 0, 2 * p.count), with_last(x.shape(), {p.count, 2}));
  const Shape one = with_last(x.shape(), {p.count});
  return {reshape(slice(both, -1, 0, 1), one), reshape(slice(both, -1, 1, 2), one)};
}

// The reverse: [...,2P] of two [...,P].
Value join_pairs(Value first, Value second, bool half_split) {
  if (half_split) return concat({first, second}, -1);
  const Shape one = with_last(first.shape(), {first.shape()[-1], 1});
  return reshape(concat({reshape(first, one), reshape(second, one)}, -1),
                 with_last(first.shape(), {2 * first.shape()[-1]}));
}

// A table [...,2P] for heads of x's width, where the elements beyond the pairs have `rest`, to be
// broadcast against x.
Value table_for(Value x, Value table, double rest) {
  const int64_t more = x.shape()[-1] - table.shape()[-1];
  if (more > 0) {
    const Shape s = with_last(table.shape(), {more});
    table = concat({table, constant(*x.graph, rest, s, table.dtype())}, -1);
  }
  Shape s = x.shape();
  for (int64_t d = 0; d + 1 < s.rank(); ++d) s[d] = 1;
  s[0] = table.shape().rank() == 3 ? table.shape()[0] : 1;
  s[1] = x.shape()[1];
  return reshape(table, s);
}

// x with the elements of each pair exchanged. What follows the pairs meets a sine of 0, so it may
// be exchanged too where that makes one swap of all.
Value partner_of(Value x, const Pairs& p) {
  const int64_t run = p.half_split ? p.count : 1, width = x.shape()[-1];
  if (width % (2 * run) == 0) return swap_runs(x, run);
  return concat({swap_runs(slice(x, -1, 0, 2 * p.count), run), slice(x, -1, 2 * p.count, width)},
                -1);
}

// y = x cos' + partner sin', where partner has the elements of each pair exchanged: one expression
// of x's shape. The tables with both elements of a pair are small, and all layers share them.
std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const Value x = in[0];
  const Pairs p = pairs_of(s);
  const Value partner = partner_of(x, p);
  const Value minus = map({in[2]}, [](auto v) { return -v[0]; });
  const bool inverse = s.as<Rope>().inverse;
  const Value sin = join_pairs(inverse ? in[2] : minus, inverse ? minus : in[2], p.half_split);
  const Value cos = join_pairs(in[1], in[1], p.half_split);
  return {map(
      {x, partner, table_for(x, cos, 1), table_for(x, sin, 0)},
      [](auto v) { return v[0] * v[2] + v[1] * v[3]; }, x.dtype())};
}

// dx = dy rotated back. Fixed tables need no gradient: theirs is dead code then.
std::vector<Value> vjp(const VjpCall& c) {
  Rope back = c.sig.as<Rope>();
  const double sign = back.inverse ? -1 : 1;
  back.inverse = !back.inverse;
  const Pairs p = pairs_of(c.sig);
  const auto [xa, xb] = split_pairs(c.in[0], p);
  const auto [ya, yb] = split_pairs(c.dout[0], p);
  const Shape& table = c.in[1].shape();
  Shape as = xa.shape();
  for (int64_t d = 0; d + 1 < as.rank(); ++d) as[d] = 1;
  as[0] = table.rank() == 3 ? table[0] : 1;
  as[1] = xa.shape()[1];
  const Value cos = map(
      {xa, xb, ya, yb}, [](auto v) { return v[0] * v[2] + v[1] * v[3]; }, DType::f32);
  const Value sin = map(
      {xa, xb, ya, yb}, [=](auto v) { return sign * (v[0] * v[3] - v[1] * v[2]); }, DType::f32);
  return {rope(c.dout[0], c.in[1], c.in[2], back), reshape(sum_to(cos, as), table),
          reshape(sum_to(sin, as), table)};
}

// x [N,T,...,D] with tables of `pairs` pairs, by sample if `samples` is not 0.
Example example(std::string label, Shape x, int64_t pairs, bool half_split, int64_t samples = 0) {
  const Type table{DType::f32, samples == 0 ? Shape{x[1], pairs} : Shape{samples, x[1], pairs}};
  return {.label = std::move(label),
          .attrs = Rope{.half_split = half_split},
          .in = {{DType::f32, std::move(x)}, table, table}};
}

std::vector<Example> examples() {
  Example inverse = example("inverse", {2, 5, 3, 8}, 4, false);
  inverse.attrs = Rope{.inverse = true};
  Example inverse_half = example("inverse_half", {1, 3, 2, 10}, 4, true, 1);
  inverse_half.attrs = Rope{.half_split = true, .inverse = true};
  Example flux = example("flux", {1, 4608, 24, 128}, 64, false);
  Example llama = example("llama", {1, 8192, 32, 128}, 64, true);
  flux.bench = llama.bench = true;
  return {example("interleaved", {2, 7, 3, 16}, 8, false),
          example("half_split", {2, 7, 3, 16}, 8, true),
          example("by_sample", {3, 5, 2, 8}, 4, false, 3),
          example("half_by_sample", {3, 5, 2, 8}, 4, true, 3),
          example("partial", {2, 5, 3, 13}, 4, false),
          example("half_partial", {2, 5, 3, 13}, 4, true),
          example("packed", {2, 3, 2, 3, 6}, 3, true, 1),
          example("one_head", {1, 9, 34}, 17, false),
          example("one_pair", {1, 1, 1, 2}, 1, true),
          example("empty", {0, 3, 2, 4}, 2, false),
          inverse,
          inverse_half,
          flux,
          llama};
}

}  // namespace

const OpDef& def::rope() {
  static const OpDef d{.name = "rope",
                       .attrs = +[] { return Attrs(Rope{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .examples = examples,
                       .precision = OpDef::Precision::mixed};
  return d;
}

Value rope(Value x, Value cos, Value sin, const Rope& attrs) {
  return x.graph->add1(def::rope(), attrs, {x, cos, sin});
}

}  // namespace ebb::ops
