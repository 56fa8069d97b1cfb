#include "ops/prim/attention_grad/op.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  const size_t at = z.operands();  // of o
  require(s.in.size() == at + 3 || s.in.size() == at + 4,
          "attention_grad: takes the attention's inputs, o, lse, do and perhaps dlse (got ",
          s.in.size(), " inputs)  at ", s.at);
  const Type o{s.in[0].dtype, {z.n, z.t, z.a, z.k}};
  const Shape lse{z.n, z.a, z.t};
  for (const size_t i : {at, at + 2})
    require(s.in[i] == o, "attention_grad: o and do must be ", o, "  o: ", s.in[at],
            "  do: ", s.in[at + 2], "  at ", s.at);
  for (size_t i = at + 1; i < s.in.size(); i += 2)
    require(s.in[i].shape == lse && is_float(s.in[i].dtype),
            "attention_grad: lse and dlse must be floats ", lse, "  lse: ", s.in[at + 1], "  at ",
            s.at);
  return {s.in.begin(), s.in.begin() + static_cast<std::ptrdiff_t>(z.tensors())};
}

// [N,S,H*group,K] -> [N,S,H,K]: the sum over the query heads of a group.
Value sum_groups(Value x, const AttentionSizes& z) {
  const Value all = sum(reshape(x, {z.n, z.s, z.key_heads, z.group(), z.k}), {3});
  return cast(reshape(all, {z.n, z.s, z.key_heads, z.k}), x.dtype());
}

std::vector<Value> decompose_groups(Graph& g, const Signature& s, std::span<const Value> in) {
  const AttentionSizes z = attention_sizes(s);
  std::vector<Value> repeated(in.begin(), in.end());
  for (const size_t i : {1, 2}) repeated[i] = repeat_heads(in[i], z.group());
  std::vector<Value> d = g.add(def::attention_grad(), s.attrs, repeated);
  for (const size_t i : {1, 2}) d[i] = sum_groups(d[i], z);
  return d;
}

// For kernels without packed QKV or without grouped heads.
std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const AttentionSizes z = attention_sizes(s);
  if (z.group() > 1) return decompose_groups(g, s, in);
  require(z.packed, "attention_grad: this device has no kernel for it  ", s.text(), "  at ", s.at);
  std::vector<Value> qkv = split_qkv(in[0]);
  qkv.insert(qkv.end(), in.begin() + 1, in.end());
  std::vector<Value> out;
  Attention attrs = s.as<Attention>();
  attrs.packed = false;
  for (const Value& d : g.add(def::attention_grad(), attrs, qkv))
    out.push_back(reshape(d, {z.n, z.t, 1, z.a, z.k}));
  return {concat(std::move(out), 2)};
}

// One query: adds its contribution to dq, dk and dv. All pointers are at the sample and head.
// `added`: bias of each key's score.
struct Query {
  const double *q, *k, *v, *o, *dout, *added;
  double lse, dlse;
  double *dq, *dk, *dv;
};

void add_query(const AttentionSizes& z, const Query& x) {
  double delta = -x.dlse;
  for (int64_t d = 0; d < z.k; ++d) delta += x.o[d] * x.dout[d];
  for (int64_t j = 0; j < z.s; ++j) {
    const int64_t at = j * z.key_row_stride();
    double dot = 0, dp = 0;
    for (int64_t d = 0; d < z.k; ++d) {
      dot += x.q[d] * x.k[at + d];
      dp += x.dout[d] * x.v[at + d];
    }
    const double p = std::exp(z.scale * dot + x.added[j] - x.lse);
    const double ds = z.scale * p * (dp - delta);
    for (int64_t d = 0; d < z.k; ++d) {
      x.dq[d] += ds * x.k[at + d];
      x.dk[at + d] += ds * x.q[d];
      x.dv[at + d] += p * x.dout[d];
    }
  }
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const AttentionSizes z = attention_sizes(s);
  for (RefArray& a : out) std::fill(a.v.begin(), a.v.end(), 0.0);
  std::vector<double> added(static_cast<size_t>(z.s));
  for (int64_t i = 0; i < z.n * z.a * z.t; ++i) {
    const int64_t t = i % z.t, a = i / z.t % z.a, n = i / (z.t * z.a);
    const int64_t head = a * z.k, query = (n * z.t + t) * z.row_stride() + head,
                  key = n * z.s * z.key_row_stride() + a / z.group() * z.k,
                  o = (n * z.t + t) * z.out_row_stride() + head;
    // Where q, k or v begins in its array, and which array that is.
    const auto first = [&](size_t j) {
      return z.packed ? static_cast<int64_t>(j) * z.out_row_stride() : int64_t{0};
    };
    const auto of = [&](size_t j) { return z.packed ? size_t{0} : j; };
    const size_t at = z.operands();
    std::fill(added.begin(), added.end(), 0.0);
    mask_scores(z, in, {n, a, t}, added);
    add_query(z, {.q = in[of(0)].v.data() + first(0) + query,
                  .k = in[of(1)].v.data() + first(1) + key,
                  .v = in[of(2)].v.data() + first(2) + key,
                  .o = in[at].v.data() + o,
                  .dout = in[at + 2].v.data() + o,
                  .added = added.data(),
                  .lse = in[at + 1].v[static_cast<size_t>(i)],
                  .dlse = in.size() == at + 4 ? in[at + 3].v[static_cast<size_t>(i)] : 0,
                  .dq = out[of(0)].v.data() + first(0) + query,
                  .dk = out[of(1)].v.data() + first(1) + key,
                  .dv = out[of(2)].v.data() + first(2) + key});
  }
}

// Five GEMMs; the exponentials are not counted.
Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : s.in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  const AttentionSizes z = attention_sizes(s);
  c.flops = 10.0 * static_cast<double>(z.n * z.a * z.pairs()) * static_cast<double>(z.k);
  return c;
}

Example example(std::string label, Shape q, Shape k, bool dlse) {
  const Type tq{DType::f32, q}, tk{DType::f32, k}, lse{DType::f32, {q[0], q[2], q[1]}};
  Example e{.label = std::move(label), .attrs = Attention{}, .in = {tq, tk, tk, tq, lse, tq}};
  if (dlse) e.in.push_back(lse);
  e.bench = q.numel() > 30000;
  return e;
}

Example packed(std::string label, Shape qkv, bool dlse) {
  const Shape o{qkv[0], qkv[1], qkv[3], qkv[4]};
  Example e = example(std::move(label), o, o, dlse);
  e.attrs = Attention{.packed = true};
  e.in.erase(e.in.begin(), e.in.begin() + 2);
  e.in[0].shape = qkv;
  return e;
}

// attention's examples with masks and biases, and with grouped heads.
void add_masked(std::vector<Example>& all) {
  for (Example& e : def::attention().examples()) {
    const AttentionSizes z =
        attention_sizes(Signature{&def::attention_grad(), e.attrs, e.in, {}, ""});
    if ((z.plain() && z.group() == 1) || e.bench) continue;
    const Type o{DType::f32, {z.n, z.t, z.a, z.k}}, lse{DType::f32, {z.n, z.a, z.t}};
    e.in.insert(e.in.end(), {o, lse, o});
    if (all.size() % 2 == 0) e.in.push_back(lse);
    all.push_back(std::move(e));
  }
}

// Several blocks of keys, with a causal mask and with grouped heads; more heads than run at once,
// and fewer.
void add_long_masked(std::vector<Example>& all) {
  const auto add = [&](std::string label, Shape q, Shape k, bool causal, bool dlse) {
    Example e = example(std::move(label), q, k, dlse);
    e.attrs = Attention{.causal = causal};
    e.in[1].shape = e.in[2].shape = k;
    e.bench = false;
    all.push_back(std::move(e));
  };
  add("causal_group", {1, 300, 4, 64}, {1, 300, 2, 64}, true, true);
  add("causal_prefix_128", {2, 130, 3, 128}, {2, 260, 1, 128}, true, false);
  add("group_blocks", {1, 300, 4, 64}, {1, 390, 2, 64}, false, true);
  add("group_blocks_80", {1, 150, 4, 80}, {1, 270, 1, 80}, false, false);
}

std::vector<Example> examples() {
  std::vector<Example> all{packed("packed", {2, 37, 3, 2, 24}, true),
                           packed("packed_72", {1, 140, 3, 2, 72}, false),
                           packed("packed_64", {1, 200, 3, 2, 64}, false),
                           packed("packed_264", {2, 40, 3, 1, 264}, false),
                           example("self", {2, 13, 3, 8}, {2, 13, 3, 8}, false),
                           example("cross", {2, 5, 2, 32}, {2, 77, 2, 32}, true),
                           example("odd_width", {1, 7, 1, 5}, {1, 11, 1, 5}, false),
                           example("blocks", {1, 131, 1, 16}, {1, 269, 1, 16}, false),
                           example("width_40", {1, 66, 2, 40}, {1, 40, 2, 40}, false),
                           example("width_72", {2, 33, 1, 72}, {2, 100, 1, 72}, true),
                           example("width_128", {1, 20, 2, 128}, {1, 70, 2, 128}, false),
                           example("blocks_64", {1, 200, 2, 64}, {1, 300, 2, 64}, true),
                           example("blocks_80", {2, 130, 1, 80}, {2, 257, 1, 80}, false),
                           example("blocks_128", {1, 150, 1, 128}, {1, 290, 1, 128}, false),
                           example("width_160", {1, 20, 1, 160}, {1, 33, 1, 160}, false),
                           example("width_264", {2, 40, 1, 264}, {2, 70, 1, 264}, true),
                           example("width_512", {1, 30, 1, 512}, {1, 53, 1, 512}, false),
                           packed("head", {2, 64, 3, 2, 64}, true),
                           packed("head_48", {2, 50, 3, 2, 48}, false),
                           example("head_130_128", {1, 130, 1, 64}, {1, 128, 1, 64}, true),
                           example("head_256_65", {1, 256, 1, 32}, {1, 65, 1, 32}, false),
                           example("one_key", {1, 3, 2, 8}, {1, 1, 2, 8}, true),
                           example("empty", {0, 3, 2, 8}, {0, 3, 2, 8}, false),
                           example("dit", {4, 256, 4, 32}, {4, 256, 4, 32}, false),
                           example("long", {2, 1024, 4, 64}, {2, 1024, 4, 64}, false),
                           example("vae", {1, 4096, 1, 512}, {1, 4096, 1, 512}, false)};
  add_masked(all);
  add_long_masked(all);
  return all;
}

}  // namespace

const OpDef& def::attention_grad() {
  static const OpDef d{.name = "attention_grad",
                       .attrs = +[] { return Attrs(Attention{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .reference = reference,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low,
                       .matrix_work = true};
  return d;
}

}  // namespace ebb::ops
