#include "ops/prim/attention/op.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/prim/attention_grad/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {

namespace {

AttentionSizes packed_sizes(const Signature& s) {
  const Type& x = s.in[0];
  require(x.shape.rank() == 5 && x.shape[2] == 3 && is_float(x.dtype), s.op->name,
          ": q, k and v in one must be floats [N,T,3,A,K]  qkv: ", x, "  at ", s.at);
  return {.n = x.shape[0],
          .t = x.shape[1],
          .s = x.shape[1],
          .a = x.shape[3],
          .k = x.shape[4],
          .packed = true};
}

AttentionSizes separate_sizes(const Signature& s) {
  const std::string_view op = s.op->name;
  require(s.in.size() >= 3, op, ": takes q, k and v (got ", s.in.size(), " inputs)  at ", s.at);
  const Type &q = s.in[0], &k = s.in[1], &v = s.in[2];
  const auto end = [&] { return str("  q: ", q, "  k: ", k, "  v: ", v, "  at ", s.at); };
  require(q.shape.rank() == 4 && k.shape.rank() == 4, op, ": q, k and v must be [N,T,A,K]", end());
  require(is_float(q.dtype) && q.dtype == k.dtype && q.dtype == v.dtype, op,
          ": q, k and v must have one float dtype", end());
  require(k.shape == v.shape, op, ": k and v must have one shape", end());
  for (const int64_t d : {0, 2, 3})
    require(q.shape[d] == k.shape[d], op, ": q and k must agree in samples, heads and width (",
            q.shape[d], " and ", k.shape[d], ")", end());
  return {.n = q.shape[0], .t = q.shape[1], .s = k.shape[1], .a = q.shape[2], .k = q.shape[3]};
}

}  // namespace

AttentionSizes attention_sizes(const Signature& s) {
  const auto& attrs = s.as<Attention>();
  require(!s.in.empty(), s.op->name, ": takes q, k and v (got no input)  at ", s.at);
  AttentionSizes z = attrs.packed ? packed_sizes(s) : separate_sizes(s);
  require(z.s > 0 && z.k > 0, s.op->name, ": needs keys and a width  q: ", s.in[0], "  at ", s.at);
  z.scale = attrs.scale == 0 ? 1 / std::sqrt(static_cast<double>(z.k)) : attrs.scale;
  return z;
}

namespace {

std::vector<Type> infer(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  require(s.in.size() == z.operands(), "attention: takes q, k and v (got ", s.in.size(),
          " inputs)  at ", s.at);
  return {{s.in[0].dtype, {z.n, z.t, z.a, z.k}}, {DType::f32, {z.n, z.a, z.t}}};
}

// Where kernels want q, k and v apart.
std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const AttentionSizes z = attention_sizes(s);
  require(z.packed, "attention: this device has no kernel for it  ", s.text(), "  at ", s.at);
  return g.add(def::attention(), Attention{z.scale}, parts_of(in[0]));
}

std::vector<Value> vjp(const VjpCall& c) {
  const Value o = c.out[0];
  const Value dout =
      c.dout[0] ? cast(c.dout[0], o.dtype()) : constant(c.graph, 0, o.shape(), o.dtype());
  std::vector<Value> in(c.in.begin(), c.in.end());
  in.insert(in.end(), {o, c.out[1], dout});
  if (c.dout[1]) in.push_back(c.dout[1]);
  return c.graph.add(def::attention_grad(), c.sig.attrs, in);
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const AttentionSizes z = attention_sizes(s);
  std::vector<double> p(static_cast<size_t>(z.s));
  // Row t of head a of q, k or v.
  const auto row = [&](size_t which, int64_t n, int64_t t, int64_t a) {
    const int64_t count = which == 0 ? z.t : z.s;
    const auto first = static_cast<int64_t>(z.packed ? which : 0) * z.out_step();
    return in[z.packed ? 0 : which].v.data() + (n * count + t) * z.step() + first + a * z.k;
  };
  for (int64_t i = 0; i < z.n * z.a * z.t; ++i) {
    const int64_t t = i % z.t, a = i / z.t % z.a, n = i / (z.t * z.a);
    const double* q = row(0, n, t, a);
    double* o = out[0].v.data() + (n * z.t + t) * z.out_step() + a * z.k;
    double highest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < z.s; ++j) {
      const double* k = row(1, n, j, a);
      double dot = 0;
      for (int64_t d = 0; d < z.k; ++d) dot += q[d] * k[d];
      p[static_cast<size_t>(j)] = z.scale * dot;
      highest = std::max(highest, z.scale * dot);
    }
    for (double& x : p) sum += x = std::exp(x - highest);
    std::fill(o, o + z.k, 0.0);
    for (int64_t j = 0; j < z.s; ++j)
      for (int64_t d = 0; d < z.k; ++d)
        o[d] += p[static_cast<size_t>(j)] / sum * row(2, n, j, a)[d];
    out[1].v[static_cast<size_t>(i)] = highest + std::log(sum);
  }
}

// Two products; the exponentials are not counted.
Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  const AttentionSizes z = attention_sizes(s);
  c.flops = 4.0 * static_cast<double>(z.n * z.a * z.t) * static_cast<double>(z.s * z.k);
  return c;
}

std::vector<Example> examples() {
  const auto same = [](Shape q, Shape k) {
    return std::vector<Type>{{DType::f32, q}, {DType::f32, k}, {DType::f32, k}};
  };
  return {
      {.label = "self", .attrs = Attention{}, .in = same({2, 13, 3, 8}, {2, 13, 3, 8})},
      {.label = "cross", .attrs = Attention{}, .in = same({2, 5, 2, 32}, {2, 77, 2, 32})},
      {.label = "odd_width", .attrs = Attention{0.3}, .in = same({1, 7, 1, 5}, {1, 11, 1, 5})},
      {.label = "blocks", .attrs = Attention{}, .in = same({1, 131, 1, 16}, {1, 269, 1, 16})},
      {.label = "width_40", .attrs = Attention{}, .in = same({1, 66, 2, 40}, {1, 40, 2, 40})},
      {.label = "width_72", .attrs = Attention{}, .in = same({2, 33, 1, 72}, {2, 100, 1, 72})},
      {.label = "width_128", .attrs = Attention{}, .in = same({1, 20, 2, 128}, {1, 70, 2, 128})},
      {.label = "width_160", .attrs = Attention{}, .in = same({1, 20, 1, 160}, {1, 33, 1, 160})},
      {.label = "width_328", .attrs = Attention{}, .in = same({1, 70, 1, 328}, {1, 150, 1, 328})},
      {.label = "width_512", .attrs = Attention{}, .in = same({2, 9, 2, 512}, {2, 33, 2, 512})},
      {.label = "peaked",
       .attrs = Attention{0.5},
       .in = same({1, 9, 2, 16}, {1, 17, 2, 16}),
       .low = -4,
       .high = 4},
      {.label = "packed", .attrs = Attention{0, true}, .in = {{DType::f32, {2, 37, 3, 2, 24}}}},
      {.label = "packed_72", .attrs = Attention{0, true}, .in = {{DType::f32, {1, 140, 3, 2, 72}}}},
      {.label = "packed_64", .attrs = Attention{0, true}, .in = {{DType::f32, {1, 200, 3, 2, 64}}}},
      {.label = "packed_264",
       .attrs = Attention{0, true},
       .in = {{DType::f32, {2, 40, 3, 1, 264}}}},
      {.label = "one_key", .attrs = Attention{}, .in = same({1, 3, 2, 8}, {1, 1, 2, 8})},
      {.label = "empty", .attrs = Attention{}, .in = same({0, 3, 2, 8}, {0, 3, 2, 8})},
      {.label = "dit",
       .attrs = Attention{},
       .in = same({4, 256, 4, 32}, {4, 256, 4, 32}),
       .bench = true},
      {.label = "long",
       .attrs = Attention{},
       .in = same({2, 1024, 4, 64}, {2, 1024, 4, 64}),
       .bench = true},
      {.label = "vae",
       .attrs = Attention{},
       .in = same({1, 4096, 1, 512}, {1, 4096, 1, 512}),
       .bench = true},
  };
}

}  // namespace

const OpDef& def::attention() {
  static const OpDef d{.name = "attention",
                       .attrs = +[] { return Attrs(Attention{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low};
  return d;
}

std::vector<Value> parts_of(Value qkv) {
  const Shape& s = qkv.shape();
  std::vector<Value> out;
  for (int64_t j = 0; j < 3; ++j)
    out.push_back(reshape(slice(qkv, 2, j, j + 1), {s[0], s[1], s[3], s[4]}));
  return out;
}

Value attention(Value q, Value k, Value v, double scale) {
  const Value in[] = {q, k, v};
  return q.graph->add(def::attention(), Attention{scale}, in)[0];
}

Value packed_attention(Value qkv, double scale) {
  const Value in[] = {qkv};
  return qkv.graph->add(def::attention(), Attention{scale, true}, in)[0];
}

}  // namespace ebb::ops
