#include "ops/matmul_scaled/op.h"

#include "base/error.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {

Signature scaled_product_of(const Signature& s) {
  const size_t operands = s.as<MatmulScaled>().bias ? 3 : 2;
  require(s.in.size() == operands + 2, "matmul_scaled: takes a, b", operands == 3 ? ", bias" : "",
          ", residual and scale (got ", s.in.size(), " inputs)  at ", s.at);
  Signature p{&def::matmul(), Matmul{.trans_b = true}, s.in, {}, s.at};
  p.in.resize(operands);
  p.out = p.op->infer(p);
  return p;
}

namespace {

std::vector<Type> infer(const Signature& s) {
  const Type z = scaled_product_of(s).out[0];
  const Type &residual = s.in[s.in.size() - 2], &scale = s.in.back();
  const int64_t column = s.as<MatmulScaled>().column;
  require(residual == z, "matmul_scaled: residual must be ", z, " (got ", residual, ")  at ", s.at);
  Shape rows = z.shape;
  for (int64_t d = 1; d + 1 < rows.rank(); ++d) rows[d] = 1;
  if (scale.shape.rank() > 0) rows[-1] = scale.shape[-1];
  require(z.shape.rank() > 2 && scale == Type{z.dtype, rows} && column >= 0 &&
              column + z.shape[-1] <= rows[-1],
          "matmul_scaled: scale must have a row for each image of ", z, " from column ", column,
          " on (got ", scale, ")  at ", s.at);
  return {z};
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const Signature product = scaled_product_of(s);
  const int64_t column = s.as<MatmulScaled>().column, width = s.out[0].shape[-1];
  const Value z = g.add(*product.op, product.attrs, in.first(product.in.size()))[0];
  return {map(
      {z, slice(in.back(), -1, column, column + width), in[in.size() - 2]},
      [](auto x) { return x[2] + x[1] * x[0]; }, std::string(name_of(s.out[0].dtype)))};
}

Cost cost(const Signature& s) {
  Cost c = cost_of(scaled_product_of(s));
  c.flops += 2 * static_cast<double>(s.out[0].shape.numel());
  c.bytes += static_cast<double>(s.out[0].bytes());
  return c;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "bias",
       .attrs = MatmulScaled{.bias = true, .column = 3},
       .in = {f32({3, 5, 11}), f32({17, 11}), f32({17}), f32({3, 5, 17}), f32({3, 1, 21})}},
      {.label = "no_bias",
       .attrs = MatmulScaled{},
       .in = {f32({2, 4, 16}), f32({24, 16}), f32({2, 4, 24}), f32({2, 1, 24})}},
      {.label = "edges",  // a row of factors for one, or for several, tiles of a kernel
       .attrs = MatmulScaled{.bias = true, .column = 5},
       .in = {f32({2, 256, 72}), f32({136, 72}), f32({136}), f32({2, 256, 136}), f32({2, 1, 280})}},
      {.label = "edges_no_bias",
       .attrs = MatmulScaled{},
       .in = {f32({3, 128, 40}), f32({200, 40}), f32({3, 128, 200}), f32({3, 1, 200})}},
      {.label = "empty",
       .attrs = MatmulScaled{},
       .in = {f32({0, 3, 5}), f32({4, 5}), f32({0, 3, 4}), f32({0, 1, 4})}},
      {.label = "dit_proj",
       .attrs = MatmulScaled{.bias = true},
       .in = {f32({64, 256, 1152}), f32({1152, 1152}), f32({1152}), f32({64, 256, 1152}),
              f32({64, 1, 6912})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::matmul_scaled() {
  static const OpDef d{.name = "matmul_scaled",
                       .attrs = +[] { return Attrs(MatmulScaled{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low,
                       .operands = 2};
  return d;
}

}  // namespace ebb::ops
