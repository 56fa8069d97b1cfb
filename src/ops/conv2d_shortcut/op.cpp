#include "ops/conv2d_shortcut/op.h"

#include "base/error.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {

namespace {

size_t inputs_of_conv(const Signature& s) { return s.as<Conv2dShortcut>().bias ? 3 : 2; }

}  // namespace

Signature shortcut_conv_of(const Signature& s) {
  const auto& a = s.as<Conv2dShortcut>();
  const size_t of_conv = inputs_of_conv(s);
  require(s.in.size() == of_conv + 2 || s.in.size() == of_conv + 4, "conv2d_shortcut: takes x, w",
          a.bias ? ", bias" : "", " and one or two pairs of y and v (got ", s.in.size(),
          " inputs)  at ", s.at);
  Signature c{&def::conv2d(), Conv2d{a.stride, a.pad, ""}, s.in, {}, s.at};
  c.in.resize(of_conv);
  c.out = c.op->infer(c);
  return c;
}

std::vector<Signature> shortcut_matmuls_of(const Signature& s) {
  std::vector<Signature> all;
  for (size_t k = inputs_of_conv(s); k + 1 < s.in.size(); k += 2) {
    Signature m{&def::matmul(), Matmul{.trans_b = true}, {s.in[k], s.in[k + 1]}, {}, s.at};
    m.out = m.op->infer(m);
    all.push_back(std::move(m));
  }
  return all;
}

namespace {

std::vector<Type> infer(const Signature& s) {
  const Type conv = shortcut_conv_of(s).out[0];
  for (const Signature& m : shortcut_matmuls_of(s))
    require(m.out[0] == conv, "conv2d_shortcut: all summands must have one type (", conv, " and ",
            m.out[0], ")  at ", s.at);
  return {conv};
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const Signature conv = shortcut_conv_of(s);
  Value sum = g.add(*conv.op, conv.attrs, in.first(conv.in.size()))[0];
  size_t k = conv.in.size();
  for (const Signature& m : shortcut_matmuls_of(s)) {
    const Value more = g.add(*m.op, m.attrs, in.subspan(k, 2))[0];
    sum = map({sum, more}, [](auto v) { return v[0] + v[1]; });
    k += 2;
  }
  return {sum};
}

Cost cost(const Signature& s) {
  Cost c = cost_of(shortcut_conv_of(s));
  for (const Signature& m : shortcut_matmuls_of(s)) {
    const Cost more = cost_of(m);
    c.flops += more.flops;
    c.bytes += more.bytes - static_cast<double>(s.out[0].bytes());
  }
  return c;
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  const std::vector<int64_t> same{1, 1, 1, 1};
  return {
      {.label = "bias",
       .attrs = Conv2dShortcut{1, same, true},
       .in = {f32({2, 5, 7, 3}), f32({6, 3, 3, 3}), f32({6}), f32({2, 5, 7, 4}), f32({6, 4})}},
      {.label = "blocks",
       .attrs = Conv2dShortcut{1, same, false},
       .in = {f32({1, 4, 4, 32}), f32({16, 3, 3, 32}), f32({1, 4, 4, 8}), f32({16, 8})}},
      {.label = "edges",
       .attrs = Conv2dShortcut{1, same, true},
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({136}), f32({2, 9, 11, 136}),
              f32({136, 136})}},
      {.label = "edges_two",
       .attrs = Conv2dShortcut{1, same, true},
       .in = {f32({2, 9, 11, 72}), f32({136, 3, 3, 72}), f32({136}), f32({2, 9, 11, 136}),
              f32({136, 136}), f32({2, 9, 11, 40}), f32({136, 40})}},
      {.label = "edges_down",  // more steps of the matmuls than of the convolution
       .attrs = Conv2dShortcut{2, {0, 0, 0, 0}, false},
       .in = {f32({3, 11, 13, 40}), f32({72, 1, 1, 40}), f32({3, 6, 7, 328}), f32({72, 328}),
              f32({3, 6, 7, 200}), f32({72, 200})}},
      {.label = "empty",
       .attrs = Conv2dShortcut{1, same, false},
       .in = {f32({0, 4, 4, 3}), f32({5, 3, 3, 3}), f32({0, 4, 4, 2}), f32({5, 2})}},
      {.label = "adm64",
       .attrs = Conv2dShortcut{1, same, true},
       .in = {f32({32, 64, 64, 192}), f32({192, 3, 3, 192}), f32({192}), f32({32, 64, 64, 192}),
              f32({192, 192}), f32({32, 64, 64, 192}), f32({192, 192})},
       .bench = true},
  };
}

}  // namespace

const OpDef& def::conv2d_shortcut() {
  static const OpDef d{.name = "conv2d_shortcut",
                       .attrs = +[] { return Attrs(Conv2dShortcut{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low};
  return d;
}

}  // namespace ebb::ops
