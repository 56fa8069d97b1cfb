#include "ops/prim/conv2d/op.h"

#include "base/error.h"
#include "ops/prim/conv2d/upsampled.h"
#include "ops/prim/conv2d_dw/op.h"
#include "ops/prim/conv2d_dx/op.h"
#include "ops/prim/epilogue.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {

ConvGeometry conv2d_geometry(const Signature& s) {
  const auto& a = s.as<Conv2d>();
  return conv_geometry(s, s.in[0].shape, s.in[1].shape, {a.stride, a.pad});
}

std::vector<Signature> added_products_of(const Signature& s) {
  const auto first_operand = 2 * static_cast<size_t>(s.as<Conv2d>().products);
  std::vector<Signature> all;
  for (size_t k = 2; k < first_operand; k += 2) {
    Signature m{&def::matmul(), Matmul{.trans_b = true}, {s.in[k], s.in[k + 1]}, {}, s.at};
    m.out = m.op->infer(m);
    all.push_back(std::move(m));
  }
  return all;
}

namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Conv2d>();
  require(a.products > 0 && std::ssize(s.in) >= 2 * a.products, "conv2d: takes x and w",
          a.products > 1 ? str(" and ", a.products - 1, " pairs of y and v") : "", " (got ",
          s.in.size(), " inputs)  at ", s.at);
  const ConvGeometry g = conv2d_geometry(s);
  const DType out = a.dtype.value_or(s.in[0].dtype);
  require(is_float(s.in[0].dtype) && is_float(s.in[1].dtype) && is_float(out),
          "conv2d: takes floats  x: ", s.in[0], "  w: ", s.in[1], "  at ", s.at);
  for (const Signature& m : added_products_of(s))
    require(m.out[0] == Type{s.in[0].dtype, g.y()}, "conv2d: all products must be ", g.y(),
            " of x's dtype (got ", m.out[0], ")  at ", s.at);
  return epilogue_results(s, g.y(), out);
}

std::vector<Value> vjp(const VjpCall& c) {
  const auto& a = c.sig.as<Conv2d>();
  const Value x = c.in[0], w = c.in[1], dy = cast(c.dout[0], x.dtype());
  const Summands e = summands_of(c.sig);
  const bool bias = e.bias.has_value();
  const std::vector<int64_t> size{x.shape()[1], x.shape()[2]}, kernel{w.shape()[1], w.shape()[2]};
  const Value dx = conv2d_dx(dy, w, Conv2dDx{a.stride, a.pad, size});
  const std::vector<Value> dw = conv2d_dw(x, dy, Conv2dDw{a.stride, a.pad, kernel, bias});
  std::vector<Value> out{dx, dw[0]};
  if (bias) out.push_back(dw[1]);
  if (e.residual) out.push_back(residual_gradient(c.in[*e.residual], c.dout[0]));
  return out;
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const ConvGeometry g = conv2d_geometry(s);
  RefArray products{g.y(), std::vector<double>(static_cast<size_t>(g.y().numel()))};
  for_each_product(g,
                   [&](size_t x, size_t w, size_t y) { products.v[y] += in[0].v[x] * in[1].v[w]; });
  add_products(added_products_of(s), in, products);
  compute_epilogue(s, products, in, out);
}

// Of one product, or with less of an epilogue.
std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  Conv2d a = s.as<Conv2d>();
  a.dtype = DType::f32;
  if (is_sum_of_one_product(s)) return without_last_operand(g, s, a, in);
  return product_after_product(g, s, added_products_of(s), in);
}

Cost cost(const Signature& s) {
  Cost c = epilogue_cost(s, conv2d_geometry(s).y());
  for (const Type& t : {s.in[0], s.in[1]}) c.bytes += static_cast<double>(t.bytes());
  c.flops += conv2d_geometry(s).flops();
  add_cost_of_products(added_products_of(s), c);
  return c;
}

std::optional<Attrs> with_epilogue(const Signature& s, const Epilogue& e, DType result,
                                   int64_t products) {
  Conv2d a = s.as<Conv2d>();
  a.epilogue = e;
  a.dtype = ResultDType::where_other(s.in[0].dtype, result);
  a.products = products;
  return a;
}

Attrs with_padding(const Signature& s, const std::vector<int64_t>& padding) {
  Conv2d a = s.as<Conv2d>();
  a.pad = padding;
  return a;
}

Contraction contraction(const Signature& s) {
  const auto& a = s.as<Conv2d>();
  return {.epilogue = a.epilogue,
          .products = a.products,
          .with = with_epilogue,
          .padding = a.pad,
          .with_padding = with_padding,
          .fold = conv2d_of_upsampled};
}

// f32 with narrower weights.
std::vector<Example> mixed_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "mixed",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({2, 5, 7, 24}), {DType::f16, {9, 3, 3, 24}}, {DType::f16, {9}}}},
      {.label = "mixed_residual",
       .attrs = Conv2d{2, {0, 1, 1, 1}},
       .in =
           {f32({2, 5, 7, 3}), {DType::bf16, {5, 3, 3, 3}}, f32({5}), {DType::bf16, {2, 2, 4, 5}}}},
  };
}

// With the products of a shortcut.
std::vector<Example> shortcut_examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const auto sum = [](int64_t products, std::vector<int64_t> pad = {1, 1, 1, 1},
                      int64_t stride = 1) {
    return Conv2d{.stride = stride, .pad = std::move(pad), .dtype = {}, .products = products};
  };
  return {
      {.label = "shortcut",
       .attrs = sum(2),
       .in = {f32({2, 5, 7, 3}), f32({6, 3, 3, 3}), f32({2, 5, 7, 4}), f32({6, 4}), f32({6})}},
      {.label = "blocks_shortcut",
       .attrs = sum(2),
       .in = {f32({1, 4, 4, 32}), f32({16, 3, 3, 32}), f32({1, 4, 4, 8}), f32({16, 8})}},
      {.label = "edges_shortcut",
       .attrs = sum(2),
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({2, 9, 11, 136}), f32({136, 136}),
              f32({136})}},
      {.label = "edges_two_shortcuts",
       .attrs = sum(3),
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({2, 9, 11, 136}), f32({136, 136}),
              f32({2, 9, 11, 40}), f32({136, 40}), f32({136})}},
      {.label = "edges_down_shortcuts",  // more steps of the matmuls than of the convolution
       .attrs = sum(3, {0, 0, 0, 0}, 2),
       .in = {f32({3, 11, 13, 40}), f32({72, 1, 1, 40}), f32({3, 6, 7, 328}), f32({72, 328}),
              f32({3, 6, 7, 200}), f32({72, 200})}},
      {.label = "empty_shortcut",
       .attrs = sum(2),
       .in = {f32({0, 4, 4, 3}), f32({5, 3, 3, 3}), f32({0, 4, 4, 2}), f32({5, 2})}},
      {.label = "adm64_shortcut",
       .attrs = sum(3),
       .in = {f32({32, 64, 64, 192}), f32({192, 3, 3, 192}), f32({32, 64, 64, 192}),
              f32({192, 192}), f32({32, 64, 64, 192}), f32({192, 192}), f32({192})},
       .bench = true},
  };
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  std::vector<Example> all = {
      {.label = "same3x3",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({2, 5, 7, 3}), f32({5, 3, 3, 3}), f32({5})}},
      {.label = "down",
       .attrs = Conv2d{2, {1, 1, 1, 1}},
       .in = {f32({2, 7, 8, 3}), f32({2, 3, 3, 3})}},
      {.label = "down_asymmetric",
       .attrs = Conv2d{2, {0, 0, 1, 1}},
       .in = {f32({1, 6, 8, 2}), f32({3, 3, 3, 2}), f32({3})}},
      {.label = "patches", .attrs = Conv2d{2}, .in = {f32({3, 4, 6, 5}), f32({7, 2, 2, 5})}},
      {.label = "one_by_one",
       .attrs = Conv2d{},
       .in = {f32({2, 3, 5, 13}), f32({11, 1, 1, 13}), f32({11})}},
      {.label = "oblong",
       .attrs = Conv2d{1, {2, 0, 1, 3}, DType::f32},
       .in = {f32({1, 5, 3, 2}), f32({3, 2, 4, 2})}},
      {.label = "blocks",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({1, 4, 4, 32}), f32({16, 3, 3, 32}), f32({16})}},
      {.label = "edges",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({136})}},
      {.label = "few_outputs",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({2, 9, 11, 72}), f32({4, 3, 3, 72}), f32({4})}},
      {.label = "edges_down",
       .attrs = Conv2d{2, {0, 1, 1, 1}},
       .in = {f32({3, 11, 13, 40}), f32({72, 3, 3, 40}), f32({72})}},
      {.label = "residual",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({2, 5, 7, 3}), f32({5, 3, 3, 3}), f32({5}), f32({2, 5, 7, 5})}},
      {.label = "row_for_each_image",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({3, 4, 5, 16}), f32({24, 3, 3, 16}), f32({24}), f32({3, 1, 1, 24})}},
      {.label = "row_for_each_tile",  // all rows of a tile of a kernel in one image
       .attrs = Conv2d{1, {0, 0, 0, 0}},
       .in = {f32({3, 16, 16, 8}), f32({40, 1, 1, 8}), f32({40}), f32({3, 1, 1, 40})}},
      {.label = "edges_residual",
       .attrs = Conv2d{1, {1, 1, 1, 1}, DType::f32},
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({136}), f32({2, 9, 11, 136})}},
      {.label = "empty",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({0, 4, 4, 3}), f32({5, 3, 3, 3}), f32({5})}},
      {.label = "unet32",
       .attrs = Conv2d{1, {1, 1, 1, 1}},
       .in = {f32({16, 32, 32, 128}), f32({128, 3, 3, 128}), f32({128})},
       .bench = true},
  };
  for (const auto& more : {mixed_examples(), shortcut_examples()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
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
                       .operands = 2,
                       .contraction = contraction,
                       .matrix_work = true};
  return d;
}

Value conv2d(Value x, Value w, Value bias, const Conv2d& attrs) {
  if (!bias) return x.graph->add1(def::conv2d(), attrs, {x, w});
  return x.graph->add1(def::conv2d(), attrs, {x, w, bias});
}

}  // namespace ebb::ops
