#include "functions/rotation.h"

#include "base/error.h"
#include "ops/prim/literal/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/swaps.h"
#include "ops/rope/op.h"

namespace ebb::functions {
namespace {

// [B|1,S,n], without the dims of size 1 between S and n.
Value plain_table(Value table, const Shape& x, const char* name) {
  const Shape s = table.shape();
  const auto end = [&] { return str("  ", name, ": ", s, "  x: ", x); };
  require(s.rank() >= 2, "rope: cos and sin are [S,P] or [B|1,S,P]", end());
  const bool by_sample = s.rank() > 2;
  for (int64_t d = 2; d + 1 < s.rank(); ++d)
    require(s[d] == 1, "rope: cos and sin may not differ from head to head", end());
  const Shape plain{by_sample ? s[0] : 1, by_sample ? s[1] : s[0], s[-1]};
  require(plain[1] == x[1] && (plain[0] == 1 || plain[0] == x[0]),
          "rope: cos and sin are [S,P] or [B|1,S,P] for x [B,S,...,D]", end());
  return ops::reshape(table, plain);
}

// -1 for the first and +1 for the second element of each pair; at `inverse` the other way round.
// Numbers that are read, for they would be computed at every element.
Value signs(Graph& g, const Shape& shape, const RotationRule& rule) {
  const int64_t width = shape[-1], run = rule.style == RotationStyle::half ? width / 2 : 1;
  std::vector<double> all;
  for (int64_t i = 0; i < width; ++i) all.push_back((i / run % 2 == 0) != rule.inverse ? -1 : 1);
  return ops::literal(g, std::move(all), shape);
}

}  // namespace

Value rotated(Value x, Value cos, Value sin, const RotationRule& rule) {
  const bool half = rule.style == RotationStyle::half;
  const Shape shape = x.shape();
  require(shape.rank() >= 3 && shape[-1] % 2 == 0 && is_float(x.dtype()),
          "rope: x must be [B,S,...,D] of floats with an even D (got ", x.type(), ")");
  cos = plain_table(cos, shape, "cos");
  sin = plain_table(sin, shape, "sin");
  require(cos.shape()[-1] == sin.shape()[-1], "rope: cos and sin must be of one shape (got ",
          cos.shape(), ", ", sin.shape(), ")");
  const int64_t width = shape[-1];
  if (cos.shape()[-1] != width)
    return ops::rope(x, cos, sin, {.half_split = half, .inverse = rule.inverse});
  Shape table = shape;  // broadcast along the heads
  for (int64_t d = 2; d + 1 < table.rank(); ++d) table[d] = 1;
  const auto as_table = [&](Value v) {
    table[0] = v.shape()[0];
    return ops::reshape(v, table);
  };
  Shape row = shape;
  for (int64_t d = 0; d + 1 < row.rank(); ++d) row[d] = 1;
  const Value partner = ops::swap_runs(x, half ? width / 2 : 1);
  return ops::map(
      {x, partner, as_table(cos), as_table(sin), signs(*x.graph, row, rule)},
      [](auto v) { return v[0] * v[2] + v[1] * (v[4] * v[3]); }, x.dtype());
}

}  // namespace ebb::functions
