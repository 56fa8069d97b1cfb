#include "ops/prim/conv2d_dx/op.h"

#include "base/error.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dw/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {

ConvGeometry conv2d_dx_geometry(const Signature& s) {
  const auto& a = s.as<Conv2dDx>();
  const Shape &dy = s.in[0].shape, &w = s.in[1].shape;
  require(dy.rank() == 4 && w.rank() == 4 && a.size.size() == 2, s.op->name,
          ": dy, w and size must have 4, 4 and 2 sizes  dy: ", dy, "  w: ", w, "  at ", s.at);
  const Shape x{dy[0], a.size[0], a.size[1], w[3]};
  return conv_geometry(s, x, w, {a.stride, a.pad});
}

namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() >= 2, "conv2d_dx: takes dy and w (got ", s.in.size(), " inputs)  at ", s.at);
  const auto& a = s.as<Conv2dDx>();
  const ConvGeometry g = conv2d_dx_geometry(s);
  require(s.in[0].shape == g.y(), "conv2d_dx: dy must be ", g.y(), " for images ", g.x(),
          "  dy: ", s.in[0], "  w: ", s.in[1], "  at ", s.at);
  const DType out = a.dtype.value_or(s.in[0].dtype);
  require(is_float(s.in[0].dtype) && is_float(s.in[1].dtype) && is_float(out),
          "conv2d_dx: takes floats  dy: ", s.in[0], "  w: ", s.in[1], "  at ", s.at);
  return epilogue_results(s, g.x(), out);
}

// <g, dx(dy, w)> = <conv2d(g, w), dy>.
std::vector<Value> vjp(const VjpCall& c) {
  const auto& a = c.sig.as<Conv2dDx>();
  const Value dy = c.in[0], w = c.in[1], g = cast(c.dout[0], dy.dtype());
  const std::vector<int64_t> kernel{w.shape()[1], w.shape()[2]};
  const Value dw = conv2d_dw(g, dy, Conv2dDw{a.stride, a.pad, kernel, false})[0];
  std::vector<Value> out{conv2d(g, w, {}, Conv2d{a.stride, a.pad}), dw};
  const Summands e = summands_of(c.sig);
  if (e.bias) out.push_back(residual_gradient(c.in[*e.bias], c.dout[0]));
  if (e.residual) out.push_back(residual_gradient(c.in[*e.residual], c.dout[0]));
  return out;
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const ConvGeometry g = conv2d_dx_geometry(s);
  RefArray products{g.x(), std::vector<double>(static_cast<size_t>(g.x().numel()))};
  for_each_product(g,
                   [&](size_t x, size_t w, size_t y) { products.v[x] += in[0].v[y] * in[1].v[w]; });
  compute_epilogue(s, products, in, out);
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  Conv2dDx a = s.as<Conv2dDx>();
  a.dtype = DType::f32;
  return without_last_operand(g, s, a, in);
}

Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = conv2d_dx_geometry(s).flops();
  return c;
}

// Sums alone.
std::optional<Attrs> with_epilogue(const Signature& s, const Epilogue& e, DType result,
                                   int64_t products) {
  if (!e.is_sum() || products > 1) return {};
  Conv2dDx a = s.as<Conv2dDx>();
  a.dtype = ResultDType::where_other(s.in[0].dtype, result);
  return a;
}

Contraction contraction(const Signature&) { return {.with = with_epilogue}; }

Type f32(Shape s) { return {DType::f32, std::move(s)}; }

std::vector<Example> examples() {
  const std::vector<int64_t> same{1, 1, 1, 1};
  return {
      {.label = "same3x3",
       .attrs = Conv2dDx{1, same, {5, 7}},
       .in = {f32({2, 5, 7, 5}), f32({5, 3, 3, 3})}},
      {.label = "down",
       .attrs = Conv2dDx{2, same, {7, 8}},
       .in = {f32({2, 4, 4, 2}), f32({2, 3, 3, 3})}},
      {.label = "down_asymmetric",
       .attrs = Conv2dDx{2, {0, 0, 1, 1}, {6, 8}},
       .in = {f32({1, 3, 4, 3}), f32({3, 3, 3, 2})}},
      {.label = "up",
       .attrs = Conv2dDx{2, {0, 0, 0, 0}, {6, 10}, DType::f32},
       .in = {f32({2, 3, 5, 7}), f32({7, 2, 2, 3})}},
      {.label = "one_by_one",
       .attrs = Conv2dDx{1, {0, 0, 0, 0}, {3, 5}},
       .in = {f32({2, 3, 5, 13}), f32({13, 1, 1, 11})}},
      {.label = "blocks",
       .attrs = Conv2dDx{1, same, {4, 4}},
       .in = {f32({1, 4, 4, 16}), f32({16, 3, 3, 32})}},
      {.label = "edges",
       .attrs = Conv2dDx{1, {1, 0, 1, 2}, {9, 11}},
       .in = {f32({2, 9, 11, 72}), f32({72, 3, 3, 136})}},
      {.label = "edges_down",
       .attrs = Conv2dDx{2, same, {17, 19}},
       .in = {f32({1, 9, 10, 40}), f32({40, 3, 3, 72})}},
      {.label = "sum",
       .attrs = Conv2dDx{1, same, {5, 7}},
       .in = {f32({2, 5, 7, 5}), f32({5, 3, 3, 3}), f32({2, 5, 7, 3})}},
      {.label = "sum_down",
       .attrs = Conv2dDx{2, same, {7, 8}, DType::f32},
       .in = {f32({2, 4, 4, 2}), f32({2, 3, 3, 3}), f32({2, 7, 8, 3})}},
      {.label = "sum_edges",
       .attrs = Conv2dDx{1, {1, 0, 1, 2}, {9, 11}},
       .in = {f32({2, 9, 11, 72}), f32({72, 3, 3, 136}), f32({2, 9, 11, 136})}},
      {.label = "bias_up",
       .attrs = Conv2dDx{2, same, {6, 10}},
       .in = {f32({2, 3, 5, 7}), f32({7, 4, 4, 3}), f32({3})}},
      {.label = "edges_up",  // several tiles of a kernel in each phase, with remainders
       .attrs = Conv2dDx{2, same, {22, 34}},
       .in = {f32({2, 11, 17, 72}), f32({72, 4, 4, 72}), f32({72})}},
      {.label = "edges_up_asymmetric",
       .attrs = Conv2dDx{2, {2, 0, 0, 4}, {18, 30}, DType::f32},
       .in = {f32({3, 10, 16, 136}), f32({136, 2, 4, 72})}},
      {.label = "up_three",
       .attrs = Conv2dDx{3, {1, 2, 1, 0}, {12, 15}},
       .in = {f32({2, 4, 5, 16}), f32({16, 3, 3, 24}), f32({24})}},
      {.label = "few_out",
       .attrs = Conv2dDx{1, {1, 0, 0, 1}, {8, 6}, DType::f32},
       .in = {f32({2, 7, 5, 4}), f32({4, 3, 3, 16}), f32({2, 8, 6, 16})}},
      {.label = "empty",
       .attrs = Conv2dDx{1, same, {4, 4}},
       .in = {f32({0, 4, 4, 5}), f32({5, 3, 3, 3})}},
      {.label = "unet32",
       .attrs = Conv2dDx{1, same, {32, 32}},
       .in = {f32({16, 32, 32, 128}), f32({128, 3, 3, 128})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::conv2d_dx() {
  static const OpDef d{.name = "conv2d_dx",
                       .attrs = +[] { return Attrs(Conv2dDx{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low,
                       .operands = 2,
                       .contraction = contraction,
                       .matrix_work = true};
  return d;
}

Value conv2d_dx(Value dy, Value w, const Conv2dDx& attrs) {
  return dy.graph->add1(def::conv2d_dx(), attrs, {dy, w});
}

Value conv_transpose2d(Value x, Value w, Value bias, const ConvTranspose2d& a) {
  const auto end = [&] {
    return str("  x: ", x.type(), "  w: ", w.type(), "  at ", x.graph->at());
  };
  require(x.shape().rank() == 4 && w.shape().rank() == 4 && a.pad.size() == 4,
          "conv_transpose2d: x, w and pad must have 4 sizes", end());
  require(x.shape()[3] == w.shape()[0], "conv_transpose2d: channels must agree (", x.shape()[3],
          " and ", w.shape()[0], ")", end());
  require(a.extra >= 0 && a.extra < a.stride, "conv_transpose2d: extra (", a.extra,
          ") must be less than stride (", a.stride, ")", end());
  const auto size = [&](int64_t d) {
    const auto i = static_cast<size_t>(d - 1);
    return (x.shape()[d] - 1) * a.stride - a.pad[i] - a.pad[i + 2] + w.shape()[d] + a.extra;
  };
  const Value y = conv2d_dx(x, w, Conv2dDx{a.stride, a.pad, {size(1), size(2)}});
  if (!bias) return y;
  return map(
      {y, bias}, [](auto v) { return v[0] + v[1]; }, x.dtype());
}

}  // namespace ebb::ops
