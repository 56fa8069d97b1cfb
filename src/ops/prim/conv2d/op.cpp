#include "ops/prim/conv2d/op.h"

#include "base/error.h"
#include "ops/prim/conv2d_dw/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {

ConvGeometry conv2d_geometry(const Signature& s) {
  const auto& a = s.as<Conv2d>();
  return conv_geometry(s, s.in[0].shape, s.in[1].shape, {a.stride, a.pad});
}

namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() >= 2, "conv2d: takes x and w (got ", s.in.size(), " inputs)  at ", s.at);
  const auto& a = s.as<Conv2d>();
  const ConvGeometry g = conv2d_geometry(s);
  const DType out = a.dtype.empty() ? s.in[0].dtype : parse_dtype(a.dtype);
  require(is_float(s.in[0].dtype) && is_float(s.in[1].dtype) && is_float(out),
          "conv2d: takes floats  x: ", s.in[0], "  w: ", s.in[1], "  at ", s.at);
  epilogue_of(s, g.y());  // the other inputs fit
  return {{out, g.y()}};
}

std::vector<Value> vjp(const VjpCall& c) {
  const auto& a = c.sig.as<Conv2d>();
  const Value x = c.in[0], w = c.in[1], dy = cast(c.dout[0], x.dtype());
  const Epilogue e = epilogue_of(c.sig);
  const bool bias = e.bias.has_value();
  const std::vector<int64_t> size{x.shape()[1], x.shape()[2]}, kernel{w.shape()[1], w.shape()[2]};
  const Value dx = conv2d_dx(dy, w, Conv2dDx{a.stride, a.pad, size, ""});
  const std::vector<Value> dw = conv2d_dw(x, dy, Conv2dDw{a.stride, a.pad, kernel, bias});
  std::vector<Value> out{dx, dw[0]};
  if (bias) out.push_back(dw[1]);
  if (e.residual) out.push_back(residual_gradient(c.in[*e.residual], c.dout[0]));
  return out;
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const ConvGeometry g = conv2d_geometry(s);
  for (double& v : out[0].v) v = 0;
  for_each_product(g,
                   [&](size_t x, size_t w, size_t y) { out[0].v[y] += in[0].v[x] * in[1].v[w]; });
  add_epilogue(s, in, out[0]);
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  Conv2d a = s.as<Conv2d>();
  a.dtype = name_of(DType::f32);
  return without_residual(g, s, a, in);
}

Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = conv2d_geometry(s).flops();
  return c;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "same3x3",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({2, 5, 7, 3}), f32({5, 3, 3, 3}), f32({5})}},
      {.label = "down",
       .attrs = Conv2d{2, {1, 1, 1, 1}, ""},
       .in = {f32({2, 7, 8, 3}), f32({2, 3, 3, 3})}},
      {.label = "down_asymmetric",
       .attrs = Conv2d{2, {0, 0, 1, 1}, ""},
       .in = {f32({1, 6, 8, 2}), f32({3, 3, 3, 2}), f32({3})}},
      {.label = "patches", .attrs = Conv2d{2}, .in = {f32({3, 4, 6, 5}), f32({7, 2, 2, 5})}},
      {.label = "one_by_one",
       .attrs = Conv2d{},
       .in = {f32({2, 3, 5, 13}), f32({11, 1, 1, 13}), f32({11})}},
      {.label = "oblong",
       .attrs = Conv2d{1, {2, 0, 1, 3}, "f32"},
       .in = {f32({1, 5, 3, 2}), f32({3, 2, 4, 2})}},
      {.label = "blocks",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({1, 4, 4, 32}), f32({16, 3, 3, 32}), f32({16})}},
      {.label = "edges",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({136})}},
      {.label = "few_outputs",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({2, 9, 11, 72}), f32({4, 3, 3, 72}), f32({4})}},
      {.label = "edges_down",
       .attrs = Conv2d{2, {0, 1, 1, 1}, ""},
       .in = {f32({3, 11, 13, 40}), f32({72, 3, 3, 40}), f32({72})}},
      {.label = "residual",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({2, 5, 7, 3}), f32({5, 3, 3, 3}), f32({5}), f32({2, 5, 7, 5})}},
      {.label = "row_for_each_image",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({3, 4, 5, 16}), f32({24, 3, 3, 16}), f32({24}), f32({3, 1, 1, 24})}},
      {.label = "row_for_each_tile",  // all rows of a tile of a kernel in one image
       .attrs = Conv2d{1, {0, 0, 0, 0}, ""},
       .in = {f32({3, 16, 16, 8}), f32({40, 1, 1, 8}), f32({40}), f32({3, 1, 1, 40})}},
      {.label = "edges_residual",
       .attrs = Conv2d{1, {1, 1, 1, 1}, "f32"},
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({136}), f32({2, 9, 11, 136})}},
      {.label = "mixed",  // f32 with narrower weights
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({2, 5, 7, 24}), {DType::f16, {9, 3, 3, 24}}, {DType::f16, {9}}}},
      {.label = "mixed_residual",
       .attrs = Conv2d{2, {0, 1, 1, 1}, ""},
       .in =
           {f32({2, 5, 7, 3}), {DType::bf16, {5, 3, 3, 3}}, f32({5}), {DType::bf16, {2, 2, 4, 5}}}},
      {.label = "empty",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({0, 4, 4, 3}), f32({5, 3, 3, 3}), f32({5})}},
      {.label = "unet32",
       .attrs = Conv2d{1, {1, 1, 1, 1}, ""},
       .in = {f32({16, 32, 32, 128}), f32({128, 3, 3, 128}), f32({128})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::conv2d() {
  static const OpDef d{.name = "conv2d",
                       .attrs = +[] { return Attrs(Conv2d{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low,
                       .operands = 2};
  return d;
}

Value conv2d(Value x, Value w, Value bias, const Conv2d& attrs) {
  if (!bias) return x.graph->add1(def::conv2d(), attrs, {x, w});
  return x.graph->add1(def::conv2d(), attrs, {x, w, bias});
}

}  // namespace ebb::ops
