#include "ops/prim/conv2d_dw/op.h"

#include "base/error.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {

ConvGeometry conv2d_dw_geometry(const Signature& s) {
  const auto& a = s.as<Conv2dDw>();
  const Shape &x = s.in[0].shape, &dy = s.in[1].shape;
  require(x.rank() == 4 && dy.rank() == 4 && a.kernel.size() == 2, s.op->name,
          ": x, dy and kernel must have 4, 4 and 2 sizes  x: ", x, "  dy: ", dy, "  at ", s.at);
  return conv_geometry(s, x, {dy[3], a.kernel[0], a.kernel[1], x[3]}, {a.stride, a.pad});
}

namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 2, "conv2d_dw: takes x and dy (got ", s.in.size(), " inputs)  at ", s.at);
  const ConvGeometry g = conv2d_dw_geometry(s);
  require(s.in[1].shape == g.y(), "conv2d_dw: dy must be ", g.y(), "  x: ", s.in[0],
          "  dy: ", s.in[1], "  at ", s.at);
  require(is_float(s.in[0].dtype) && s.in[0].dtype == s.in[1].dtype,
          "conv2d_dw: x and dy must have one float dtype  x: ", s.in[0], "  dy: ", s.in[1], "  at ",
          s.at);
  std::vector<Type> out{{DType::f32, g.weight()}};
  if (s.as<Conv2dDw>().bias) out.push_back({DType::f32, {g.o}});
  return out;
}

// <g, dw(x, dy)> = <conv2d(x, g), dy>, linear in x and in dy; db adds its gradient to every pixel.
std::vector<Value> vjp(const VjpCall& c) {
  const auto& a = c.sig.as<Conv2dDw>();
  const Value x = c.in[0], dy = c.in[1], gb = c.dout.size() == 2 ? c.dout[1] : Value{};
  const Value g =
      c.dout[0] ? cast(c.dout[0], x.dtype()) : constant(c.graph, 0, c.out[0].shape(), x.dtype());
  const std::vector<int64_t> size{x.shape()[1], x.shape()[2]};
  return {conv2d_dx(dy, g, Conv2dDx{a.stride, a.pad, size}),
          conv2d(x, g, gb, Conv2d{a.stride, a.pad})};
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  for (RefArray& a : out)
    for (double& v : a.v) v = 0;
  for_each_product(conv2d_dw_geometry(s),
                   [&](size_t x, size_t w, size_t y) { out[0].v[w] += in[0].v[x] * in[1].v[y]; });
  if (out.size() == 2)
    for (size_t i = 0; i < in[1].v.size(); ++i) out[1].v[i % out[1].v.size()] += in[1].v[i];
}

Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = conv2d_dw_geometry(s).flops();
  if (s.out.size() == 2) c.flops += static_cast<double>(s.in[1].shape.numel());
  return c;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const std::vector<int64_t> same{1, 1, 1, 1};
  return {
      {.label = "same3x3",
       .attrs = Conv2dDw{1, same, {3, 3}, true},
       .in = {f32({2, 5, 7, 3}), f32({2, 5, 7, 5})}},
      {.label = "down",
       .attrs = Conv2dDw{2, same, {3, 3}, false},
       .in = {f32({2, 7, 8, 3}), f32({2, 4, 4, 2})}},
      {.label = "down_asymmetric",
       .attrs = Conv2dDw{2, {0, 0, 1, 1}, {3, 3}, true},
       .in = {f32({1, 6, 8, 2}), f32({1, 3, 4, 3})}},
      {.label = "one_by_one",
       .attrs = Conv2dDw{1, {0, 0, 0, 0}, {1, 1}, true},
       .in = {f32({2, 3, 5, 13}), f32({2, 3, 5, 11})}},
      {.label = "blocks",
       .attrs = Conv2dDw{1, same, {3, 3}, true},
       .in = {f32({1, 4, 4, 32}), f32({1, 4, 4, 16})}},
      {.label = "edges",
       .attrs = Conv2dDw{1, same, {3, 3}, true},
       .in = {f32({2, 9, 11, 72}), f32({2, 9, 11, 136})}},
      {.label = "edges_down",
       .attrs = Conv2dDw{2, {0, 1, 1, 1}, {3, 3}, false},
       .in = {f32({3, 11, 13, 40}), f32({3, 5, 7, 72})}},
      {.label = "few_in",
       .attrs = Conv2dDw{1, same, {3, 3}, true},
       .in = {f32({2, 9, 7, 3}), f32({2, 9, 7, 24})}},
      {.label = "few_in_down",
       .attrs = Conv2dDw{2, {0, 0, 1, 1}, {3, 3}, false},
       .in = {f32({2, 8, 6, 4}), f32({2, 4, 3, 16})}},
      {.label = "few_out",
       .attrs = Conv2dDw{1, same, {3, 3}, true},
       .in = {f32({2, 9, 7, 24}), f32({2, 9, 7, 3})}},
      {.label = "few_out_narrower",
       .attrs = Conv2dDw{1, {1, 0, 0, 1}, {3, 3}, true},
       .in = {f32({2, 8, 6, 16}), f32({2, 7, 5, 4})}},
      {.label = "empty",
       .attrs = Conv2dDw{1, same, {3, 3}, true},
       .in = {f32({0, 4, 4, 3}), f32({0, 4, 4, 5})}},
      {.label = "unet32",
       .attrs = Conv2dDw{1, same, {3, 3}, true},
       .in = {f32({16, 32, 32, 128}), f32({16, 32, 32, 128})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::conv2d_dw() {
  static const OpDef d{.name = "conv2d_dw",
                       .attrs = +[] { return Attrs(Conv2dDw{}); },
                       .infer = infer,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low,
                       .matrix_work = true};
  return d;
}

std::vector<Value> conv2d_dw(Value x, Value dy, const Conv2dDw& attrs) {
  const Value in[] = {x, dy};
  return x.graph->add(def::conv2d_dw(), attrs, in);
}

}  // namespace ebb::ops
