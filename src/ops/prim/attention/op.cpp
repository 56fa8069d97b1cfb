#include "ops/prim/attention/op.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/prim/attention_grad/op.h"
#include "ops/prim/iota/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
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
          .key_heads = x.shape[3],
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
  for (const int64_t d : {0, 3})
    require(q.shape[d] == k.shape[d], op, ": q and k must agree in samples and width (", q.shape[d],
            " and ", k.shape[d], ")", end());
  const int64_t heads = q.shape[2], key_heads = k.shape[2];
  require(key_heads > 0 ? heads % key_heads == 0 : heads == 0, op,
          ": the heads of k and v must divide those of q (", key_heads, " and ", heads, ")", end());
  return {.n = q.shape[0],
          .t = q.shape[1],
          .s = k.shape[1],
          .a = heads,
          .k = q.shape[3],
          .key_heads = key_heads};
}

// The inputs behind q, k and v.
void check_options(const AttentionSizes& z, const Signature& s) {
  const std::string_view op = s.op->name;
  require(s.in.size() >= z.operands(), op, ": takes q, k, v", z.bias ? ", a bias" : "",
          z.key_lengths ? ", key_lengths" : "", " (got ", s.in.size(), " inputs)  at ", s.at);
  if (z.bias) {
    const Type& b = s.in[z.bias_at()];
    bool good = b.shape.rank() == 4 && is_float(b.dtype) && b.shape[3] == z.s;
    const int64_t full[] = {z.n, z.a, z.t};
    for (int64_t d = 0; good && d < 3; ++d) good = b.shape[d] == 1 || b.shape[d] == full[d];
    require(good, op, ": the bias must be floats ", Shape{z.n, z.a, z.t, z.s},
            ", of which the first three may be 1  bias: ", b, "  at ", s.at);
  }
  if (z.key_lengths) {
    const Type want{DType::i64, {z.n}}, &got = s.in[z.key_lengths_at()];
    require(got == want, op, ": key_lengths must be ", want, "  key_lengths: ", got, "  at ", s.at);
  }
}

}  // namespace

int64_t AttentionSizes::pairs() const {
  if (!causal) return t * s;
  const int64_t first = s - t + 1;  // keys of query 0, if that is not negative
  return first >= 0 ? t * first + t * (t - 1) / 2 : s * (s + 1) / 2;
}

BiasStrides bias_strides(const Shape& bias) {
  const auto stride = [&](int64_t dim, int64_t elements) { return bias[dim] == 1 ? 0 : elements; };
  return {.n = stride(0, bias[1] * bias[2] * bias[3]),
          .a = stride(1, bias[2] * bias[3]),
          .t = stride(2, bias[3])};
}

void mask_scores(const AttentionSizes& z, std::span<const RefArray> in, const QueryIndex& at,
                 std::span<double> scores) {
  if (z.bias) {
    const RefArray& bias = in[z.bias_at()];
    const BiasStrides strides = bias_strides(bias.shape);
    const double* const row =
        bias.v.data() + at.n * strides.n + at.a * strides.a + at.t * strides.t;
    for (int64_t j = 0; j < z.s; ++j) {
      const bool hidden = row[j] == -std::numeric_limits<double>::infinity();
      scores[static_cast<size_t>(j)] += hidden ? row[j] : std::max(row[j], -1e30);
    }
  }
  auto end = static_cast<double>(z.key_limit(at.t));
  if (z.key_lengths) end = std::min(end, in[z.key_lengths_at()].v[static_cast<size_t>(at.n)]);
  for (int64_t j = 0; j < z.s; ++j)
    if (!(static_cast<double>(j) < end))
      scores[static_cast<size_t>(j)] = -std::numeric_limits<double>::infinity();
}

AttentionSizes attention_sizes(const Signature& s) {
  const auto& attrs = s.as<Attention>();
  require(!s.in.empty(), s.op->name, ": takes q, k and v (got no input)  at ", s.at);
  AttentionSizes z = attrs.packed ? packed_sizes(s) : separate_sizes(s);
  z.causal = attrs.causal, z.bias = attrs.bias, z.key_lengths = attrs.key_lengths;
  check_options(z, s);
  require(z.s > 0 && z.k > 0, s.op->name, ": needs keys and a width  q: ", s.in[0], "  at ", s.at);
  z.scale = attrs.scale == 0 ? 1 / std::sqrt(static_cast<double>(z.k)) : attrs.scale;
  return z;
}

namespace {

std::vector<Type> infer(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  require(s.in.size() == z.operands(), "attention: takes ", z.operands(), " inputs (got ",
          s.in.size(), ")  at ", s.at);
  return {{s.in[0].dtype, {z.n, z.t, z.a, z.k}}, {DType::f32, {z.n, z.a, z.t}}};
}

// For kernels without packed QKV or without grouped heads.
std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const AttentionSizes z = attention_sizes(s);
  if (z.group() > 1) {
    std::vector<Value> repeated(in.begin(), in.end());
    for (const size_t i : {1, 2}) repeated[i] = repeat_heads(in[i], z.group());
    return g.add(def::attention(), s.attrs, repeated);
  }
  require(z.packed, "attention: this device has no kernel for it  ", s.text(), "  at ", s.at);
  Attention attrs = s.as<Attention>();
  attrs.packed = false;
  std::vector<Value> qkv = split_qkv(in[0]);
  qkv.insert(qkv.end(), in.begin() + 1, in.end());
  return g.add(def::attention(), attrs, qkv);
}

// Operands of the gradient of the bias.
struct BiasGradient {
  const AttentionSizes& z;
  Value q, k, v, bias, key_lengths, o, lse, dout, dlse;  // key_lengths and dlse may be none
};

Value rows_by_head(Value x) { return permute(x, {0, 2, 1, 3}); }  // [N,T,A,K] -> [N,A,T,K]

// 1 where query t attends to key s, [N|1,1,T|1,S|1].
Value visible_keys(const BiasGradient& b) {
  const AttentionSizes& z = b.z;
  Graph& g = *b.q.graph;
  const auto diagonal = static_cast<double>(z.s - z.t);
  const Value key = iota(g, {.shape = {1, 1, 1, z.s}, .dim = 3});
  const Value query = iota(g, {.shape = {1, 1, z.t, 1}, .dim = 2, .start = diagonal});
  const Value before = map({key, query}, [](auto x) { return less(x[0], x[1] + 0.5); });
  if (!z.key_lengths) return before;
  const Value count = reshape(cast(b.key_lengths, DType::f32), {z.n, 1, 1, 1});
  const Value there = map({key, count}, [](auto x) { return less(x[0], x[1]); });
  return z.causal ? map({before, there}, [](auto x) { return x[0] * x[1]; }) : there;
}

// p (dp - delta) reduced to the bias's shape, by two GEMMs. It materialises the T x S matrix; where
// nobody needs the gradient it is dead code.
Value bias_gradient(const BiasGradient& b) {
  const Matmul by_rows{.trans_b = true, .dtype = "f32"};
  const Value k = repeat_heads(b.k, b.z.group()), v = repeat_heads(b.v, b.z.group());
  const Value s = matmul(rows_by_head(b.q), rows_by_head(k), by_rows);
  const Value dp = matmul(rows_by_head(b.dout), rows_by_head(v), by_rows);
  const Shape row{b.z.n, b.z.a, b.z.t, 1};
  const Value dots = sum_of({b.o, b.dout}, {-1}, [](auto x) { return x[0] * x[1]; });
  Value delta = reshape(permute(dots, {0, 2, 1, 3}), row);
  if (b.dlse) delta = map({delta, reshape(b.dlse, row)}, [](auto x) { return x[0] - x[1]; });
  const double scale = b.z.scale;
  const bool all = !b.z.causal && !b.z.key_lengths;
  const Value visible = all ? constant(*b.q.graph, 1, {1, 1, 1, 1}) : visible_keys(b);
  const Value ds = map(
      {s, b.bias, reshape(b.lse, row), dp, delta, visible},
      [&](auto x) {
        const Scalar p = exp(x[0] * scale + x[1] - x[2]);
        return select(x[5], p * (x[3] - x[4]), 0.0);
      },
      "f32");
  return sum_to(ds, b.bias.shape());
}

std::vector<Value> vjp(const VjpCall& c) {
  const AttentionSizes z = attention_sizes(c.sig);
  const Value o = c.out[0];
  const Value dout =
      c.dout[0] ? cast(c.dout[0], o.dtype()) : constant(c.graph, 0, o.shape(), o.dtype());
  std::vector<Value> in(c.in.begin(), c.in.end());
  in.insert(in.end(), {o, c.out[1], dout});
  if (c.dout[1]) in.push_back(c.dout[1]);
  std::vector<Value> gradients = c.graph.add(def::attention_grad(), c.sig.attrs, in);
  if (z.bias) {
    const std::vector<Value> qkv =
        z.packed ? split_qkv(c.in[0]) : std::vector<Value>{c.in[0], c.in[1], c.in[2]};
    const Value lengths = z.key_lengths ? c.in[z.key_lengths_at()] : Value{};
    gradients.push_back(bias_gradient(
        {z, qkv[0], qkv[1], qkv[2], c.in[z.bias_at()], lengths, o, c.out[1], dout, c.dout[1]}));
  }
  if (z.key_lengths) gradients.emplace_back();
  return gradients;
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const AttentionSizes z = attention_sizes(s);
  std::vector<double> p(static_cast<size_t>(z.s));
  // Row t of q's head a, or of the head of k or v that it reads.
  const auto row = [&](size_t which, int64_t n, int64_t t, int64_t a) {
    const int64_t count = which == 0 ? z.t : z.s;
    const int64_t stride = which == 0 ? z.row_stride() : z.key_row_stride();
    const int64_t head = which == 0 ? a : a / z.group();
    const auto first = static_cast<int64_t>(z.packed ? which : 0) * z.out_row_stride();
    return in[z.packed ? 0 : which].v.data() + (n * count + t) * stride + first + head * z.k;
  };
  for (int64_t i = 0; i < z.n * z.a * z.t; ++i) {
    const int64_t t = i % z.t, a = i / z.t % z.a, n = i / (z.t * z.a);
    const double* q = row(0, n, t, a);
    double* o = out[0].v.data() + (n * z.t + t) * z.out_row_stride() + a * z.k;
    for (int64_t j = 0; j < z.s; ++j) {
      const double* k = row(1, n, j, a);
      double dot = 0;
      for (int64_t d = 0; d < z.k; ++d) dot += q[d] * k[d];
      p[static_cast<size_t>(j)] = z.scale * dot;
    }
    mask_scores(z, in, {n, a, t}, p);
    const double row_max = *std::max_element(p.begin(), p.end());
    std::fill(o, o + z.k, 0.0);
    out[1].v[static_cast<size_t>(i)] = 0;
    if (row_max == -std::numeric_limits<double>::infinity()) continue;  // fully masked
    double sum = 0;
    for (double& x : p) sum += x = std::exp(x - row_max);
    for (int64_t j = 0; j < z.s; ++j)
      for (int64_t d = 0; d < z.k; ++d)
        o[d] += p[static_cast<size_t>(j)] / sum * row(2, n, j, a)[d];
    out[1].v[static_cast<size_t>(i)] = row_max + std::log(sum);
  }
}

// Two GEMMs; the exponentials are not counted.
Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  const AttentionSizes z = attention_sizes(s);
  c.flops = 4.0 * static_cast<double>(z.n * z.a * z.pairs()) * static_cast<double>(z.k);
  return c;
}

Example example(std::string label, Shape q, Shape k, Attention attrs = {}) {
  return {.label = std::move(label),
          .attrs = attrs,
          .in = {{DType::f32, q}, {DType::f32, k}, {DType::f32, k}}};
}

Example packed_example(std::string label, Shape qkv, Attention attrs = {}) {
  attrs.packed = true;
  return {.label = std::move(label), .attrs = attrs, .in = {{DType::f32, qkv}}};
}

Example with_bias(Example e, Shape bias) {
  Attention attrs = e.attrs.as<Attention>();
  attrs.bias = true;
  e.attrs = attrs;
  e.in.push_back({DType::f32, bias});
  return e;
}

// Samples have 0 to S keys.
Example with_lengths(Example e) {
  Attention attrs = e.attrs.as<Attention>();
  attrs.key_lengths = true;
  e.attrs = attrs;
  e.integers = (attrs.packed ? e.in[0] : e.in[1]).shape[1] + 1;
  e.in.push_back({DType::i64, {e.in[0].shape[0]}});
  return e;
}

std::vector<Example> plain_examples() {
  Example peaked = example("peaked", {1, 9, 2, 16}, {1, 17, 2, 16}, {0.5});
  peaked.low = -4, peaked.high = 4;
  return {example("self", {2, 13, 3, 8}, {2, 13, 3, 8}),
          example("cross", {2, 5, 2, 32}, {2, 77, 2, 32}),
          example("odd_width", {1, 7, 1, 5}, {1, 11, 1, 5}, {0.3}),
          example("blocks", {1, 131, 1, 16}, {1, 269, 1, 16}),
          example("width_40", {1, 66, 2, 40}, {1, 40, 2, 40}),
          example("width_72", {2, 33, 1, 72}, {2, 100, 1, 72}),
          example("width_128", {1, 20, 2, 128}, {1, 70, 2, 128}),
          example("width_160", {1, 20, 1, 160}, {1, 33, 1, 160}),
          example("width_328", {1, 70, 1, 328}, {1, 150, 1, 328}),
          example("width_512", {2, 9, 2, 512}, {2, 33, 2, 512}),
          std::move(peaked),
          packed_example("packed", {2, 37, 3, 2, 24}),
          packed_example("packed_72", {1, 140, 3, 2, 72}),
          packed_example("packed_64", {1, 200, 3, 2, 64}),
          packed_example("packed_264", {2, 40, 3, 1, 264}),
          example("one_key", {1, 3, 2, 8}, {1, 1, 2, 8}),
          example("empty", {0, 3, 2, 8}, {0, 3, 2, 8})};
}

std::vector<Example> masked_examples() {
  constexpr Attention causal{.causal = true};
  return {example("causal", {2, 13, 3, 8}, {2, 13, 3, 8}, causal),
          example("causal_77", {2, 77, 2, 64}, {2, 77, 2, 64}, causal),
          example("causal_more_keys", {1, 131, 1, 40}, {1, 269, 1, 40}, causal),
          example("causal_more_queries", {1, 150, 2, 16}, {1, 67, 2, 16}, causal),
          example("causal_blocks", {1, 300, 1, 72}, {1, 300, 1, 72}, causal),
          example("causal_128", {1, 290, 1, 128}, {1, 290, 1, 128}, causal),
          example("causal_256", {1, 130, 1, 256}, {1, 141, 1, 256}, causal),
          packed_example("packed_causal", {2, 77, 3, 2, 64}, causal),
          packed_example("packed_causal_264", {1, 33, 3, 1, 264}, causal),
          with_lengths(example("lengths", {5, 9, 2, 32}, {5, 77, 2, 32})),
          with_lengths(example("lengths_160", {3, 70, 1, 160}, {3, 154, 1, 160})),
          with_lengths(example("lengths_causal", {4, 40, 1, 80}, {4, 53, 1, 80}, causal)),
          with_lengths(packed_example("packed_lengths", {4, 66, 3, 2, 40}, causal)),
          with_lengths(example("lengths_one_key", {4, 5, 2, 24}, {4, 1, 2, 24})),
          with_bias(example("bias", {2, 33, 2, 64}, {2, 33, 2, 64}, {0.25}), {1, 2, 33, 33}),
          with_bias(example("bias_231", {1, 70, 2, 40}, {1, 231, 2, 40}), {1, 1, 70, 231}),
          with_bias(example("bias_keys", {3, 21, 2, 72}, {3, 77, 2, 72}), {3, 1, 1, 77}),
          with_bias(example("bias_heads", {2, 9, 3, 128}, {2, 98, 3, 128}), {2, 3, 1, 98}),
          with_bias(example("bias_160", {2, 9, 1, 160}, {2, 70, 1, 160}), {2, 1, 9, 70}),
          with_bias(example("bias_odd", {1, 7, 1, 5}, {1, 11, 1, 5}, causal), {1, 1, 7, 11}),
          with_bias(packed_example("packed_bias", {2, 37, 3, 2, 24}, causal), {1, 2, 37, 37}),
          with_lengths(
              with_bias(example("all", {3, 66, 2, 64}, {3, 140, 2, 64}, causal), {3, 2, 66, 140})),
          with_lengths(
              with_bias(packed_example("packed_all", {3, 20, 3, 1, 80}, causal), {1, 1, 20, 20}))};
}

// Heads of k and v that several query heads read.
std::vector<Example> grouped_examples() {
  constexpr Attention causal{.causal = true};
  return {example("group_2", {2, 13, 4, 8}, {2, 19, 2, 8}),
          example("group_4", {1, 35, 8, 64}, {1, 70, 2, 64}),
          example("group_3_odd", {3, 7, 3, 5}, {3, 11, 1, 5}),
          example("group_width_72", {1, 33, 4, 72}, {1, 100, 2, 72}),
          example("group_width_128", {1, 70, 4, 128}, {1, 150, 1, 128}),
          example("group_width_264", {2, 9, 2, 264}, {2, 70, 1, 264}),
          example("group_long", {1, 260, 2, 40}, {1, 260, 1, 40}),
          example("group_causal", {1, 77, 4, 64}, {1, 77, 2, 64}, causal),
          example("group_causal_128", {1, 131, 2, 128}, {1, 140, 1, 128}, causal),
          with_lengths(example("group_lengths", {3, 66, 6, 32}, {3, 66, 2, 32}, causal)),
          with_bias(example("group_bias", {2, 21, 4, 80}, {2, 98, 2, 80}), {2, 4, 21, 98})};
}

std::vector<Example> bench_examples() {
  constexpr Attention causal{.causal = true};
  std::vector<Example> all{
      example("dit", {4, 256, 4, 32}, {4, 256, 4, 32}),
      example("long", {2, 1024, 4, 64}, {2, 1024, 4, 64}),
      example("vae", {1, 4096, 1, 512}, {1, 4096, 1, 512}),
      example("text_77", {2, 1024, 8, 40}, {2, 77, 8, 40}),
      example("clip", {2, 77, 12, 64}, {2, 77, 12, 64}, causal),
      example("qwen3", {1, 512, 32, 128}, {1, 512, 8, 128}, causal),
      with_bias(example("t5", {1, 256, 8, 64}, {1, 256, 8, 64}, {1}), {1, 8, 256, 256})};
  for (Example& e : all) e.bench = true;
  return all;
}

std::vector<Example> examples() {
  std::vector<Example> all = plain_examples();
  for (auto& more : {masked_examples(), grouped_examples(), bench_examples()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
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
                       .precision = OpDef::Precision::low,
                       .operands = 3,
                       .matrix_work = true};
  return d;
}

std::vector<Value> split_qkv(Value qkv) {
  const Shape& s = qkv.shape();
  std::vector<Value> out;
  for (int64_t j = 0; j < 3; ++j)
    out.push_back(reshape(slice(qkv, 2, j, j + 1), {s[0], s[1], s[3], s[4]}));
  return out;
}

Value repeat_heads(Value x, int64_t group) {
  if (group == 1) return x;
  const Shape& s = x.shape();
  const Value one = reshape(x, {s[0], s[1], s[2], 1, s[3]});
  return reshape(broadcast_to(one, {s[0], s[1], s[2], group, s[3]}),
                 {s[0], s[1], s[2] * group, s[3]});
}

namespace {

Value build(std::vector<Value> in, Attention attrs, const AttentionOptions& o) {
  attrs.scale = o.scale, attrs.causal = o.causal;
  attrs.bias = static_cast<bool>(o.bias), attrs.key_lengths = static_cast<bool>(o.key_lengths);
  if (o.bias) in.push_back(o.bias);
  if (o.key_lengths) in.push_back(o.key_lengths);
  return in[0].graph->add(def::attention(), attrs, in)[0];
}

}  // namespace

Value attention(Value q, Value k, Value v, const AttentionOptions& options) {
  return build({q, k, v}, {}, options);
}

Value packed_attention(Value qkv, const AttentionOptions& options) {
  return build({qkv}, {.packed = true}, options);
}

}  // namespace ebb::ops
