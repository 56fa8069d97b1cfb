#include "ops/prim/attention_grad/op.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/strided.h"

namespace ebb::ops {
namespace {

HeadView head_view(const Signature& s, size_t operand, const HeadView& whole) {
  const StridedView* const v = s.as<Attention>().views.of(operand);
  return v ? HeadView{v->offset, v->strides[0], v->strides[1], v->strides[2]} : whole;
}

// The shapes of dq, dk and dv, or of the gradient of packed QKV.
std::vector<Shape> gradient_shapes(const AttentionSizes& z) {
  if (z.packed) return {{z.n, z.t, 3, z.a, z.k}};
  const Shape keys{z.n, z.s, z.key_heads, z.k};
  return {{z.n, z.t, z.a, z.k}, keys, keys};
}

std::vector<Type> infer(const Signature& s) {
  const AttentionSizes z = attention_grad_sizes(s);
  const size_t at = z.operands();  // of o
  require(s.in.size() == at + 3 || s.in.size() == at + 4,
          "attention_grad: takes the attention's inputs, o, lse, do and perhaps dlse (got ",
          s.in.size(), " inputs)  at ", s.at);
  const std::vector<Type> in = operand_types(s);
  const Type o{s.in[0].dtype, {z.n, z.t, z.a, z.k}};
  const Shape lse{z.n, z.a, z.t};
  for (const size_t i : {at, at + 2})
    require(in[i] == o, "attention_grad: o and do must be ", o, "  o: ", in[at],
            "  do: ", in[at + 2], "  at ", s.at);
  for (size_t i = at + 1; i < s.in.size(); i += 2)
    require(s.in[i].shape == lse && is_float(s.in[i].dtype),
            "attention_grad: lse and dlse must be floats ", lse, "  lse: ", s.in[at + 1], "  at ",
            s.at);
  std::vector<Type> out;
  int64_t results = 0, tensors = 0;
  const std::vector<Shape> shapes = gradient_shapes(z);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const StridedView* const view = s.as<Attention>().result_views.of(i);
    const Shape tensor = result_view(s, i, shapes[i]).tensor;
    results += shapes[i].numel();
    if (view != nullptr && view->shape.rank() == 0) continue;  // in that of the one before
    out.push_back({s.in[0].dtype, tensor});
    tensors += tensor.numel();
  }
  require(results == tensors, "attention_grad: dq, dk and dv must fill their tensors (", results,
          " elements in ", tensors, ")  at ", s.at);
  return out;
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

// The use of whole tensors, moved to where the views have its results.
std::vector<Value> decompose_views(Graph& g, const Signature& s, std::span<const Value> in) {
  Attention attrs = s.as<Attention>();
  std::vector<Value> operands(in.begin(), in.end());
  for (const auto& [i, view] : attrs.views.items()) operands[i] = strided(in[i], view);
  const HeadViews results = attrs.result_views;
  attrs.views = {}, attrs.result_views = {};
  std::vector<Value> d = g.add(*s.op, attrs, operands), out;
  for (size_t i = 0; i < d.size(); ++i) {
    const StridedView* const view = results.of(i);
    if (view == nullptr) {
      out.push_back(d[i]);
      continue;
    }
    const Shape tensor = result_view(s, i, d[i].shape()).tensor;
    const Value moved = unstrided(d[i], {view->offset, d[i].shape(), view->strides}, tensor);
    if (view->shape.rank() > 0)
      out.push_back(moved);
    else
      out.back() = map({out.back(), moved}, [](auto x) { return x[0] + x[1]; });
  }
  return out;
}

// For kernels without views, without packed QKV or without grouped heads.
std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const AttentionSizes z = attention_sizes(s);
  if (z.viewed) return decompose_views(g, s, in);
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
    const double *const key = x.k + j * z.at.k.t, *const value = x.v + j * z.at.v.t;
    double *const dk = x.dk + j * z.at.dk.t, *const dv = x.dv + j * z.at.dv.t;
    double dot = 0, dp = 0;
    for (int64_t d = 0; d < z.k; ++d) {
      dot += x.q[d] * key[d];
      dp += x.dout[d] * value[d];
    }
    const double p = std::exp(z.scale * dot + x.added[j] - x.lse);
    const double ds = z.scale * p * (dp - delta);
    for (int64_t d = 0; d < z.k; ++d) {
      x.dq[d] += ds * key[d];
      dk[d] += ds * x.q[d];
      dv[d] += p * x.dout[d];
    }
  }
}

void reference(const Signature& s, std::span<const RefArray> in, std::span<RefArray> out) {
  const AttentionSizes z = attention_grad_sizes(s);
  for (RefArray& a : out) std::fill(a.v.begin(), a.v.end(), 0.0);
  std::vector<double> added(static_cast<size_t>(z.s));
  const auto input = [&](size_t j) { return in[z.packed ? 0 : j].v.data(); };
  const auto result = [&](size_t j) { return out[out.size() == 1 ? 0 : j].v.data(); };
  const size_t o = z.operands();
  for (int64_t i = 0; i < z.n * z.a * z.t; ++i) {
    const int64_t t = i % z.t, a = i / z.t % z.a, n = i / (z.t * z.a);
    const auto query = [&](const HeadView& v) { return v.offset + n * v.n + t * v.t + a * v.a; };
    const auto key = [&](const HeadView& v) { return v.offset + n * v.n + a / z.group() * v.a; };
    std::fill(added.begin(), added.end(), 0.0);
    mask_scores(z, in, {n, a, t}, added);
    add_query(z, {.q = input(0) + query(z.at.q),
                  .k = input(1) + key(z.at.k),
                  .v = input(2) + key(z.at.v),
                  .o = in[o].v.data() + query(z.at.o),
                  .dout = in[o + 2].v.data() + query(z.at.dout),
                  .added = added.data(),
                  .lse = in[o + 1].v[static_cast<size_t>(i)],
                  .dlse = in.size() == o + 4 ? in[o + 3].v[static_cast<size_t>(i)] : 0,
                  .dq = result(0) + query(z.at.dq),
                  .dk = result(1) + key(z.at.dk),
                  .dv = result(2) + key(z.at.dv)});
  }
}

// Five GEMMs; the exponentials are not counted.
Cost cost(const Signature& s) {
  Cost c;
  for (const Type& t : operand_types(s)) c.bytes += static_cast<double>(t.bytes());
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
    if ((z.plain() && z.group() == 1) || z.viewed || e.bench) continue;
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
  add("causal_head", {2, 77, 3, 64}, {2, 77, 3, 64}, true, false);
  add("causal_head_few_keys", {2, 100, 3, 40}, {2, 50, 3, 40}, true, true);
  add("causal_head_prefix", {2, 20, 3, 64}, {2, 77, 3, 64}, true, true);
  add("causal_head_more_queries", {2, 150, 3, 40}, {2, 110, 3, 40}, true, true);
  add("causal_prefix_128", {2, 130, 3, 128}, {2, 260, 1, 128}, true, false);
  add("group_blocks", {1, 300, 4, 64}, {1, 390, 2, 64}, false, true);
  add("group_blocks_80", {1, 150, 4, 80}, {1, 270, 1, 80}, false, false);
}

// attention's examples with views. o is laid as there, do as tokens before heads, and the gradients
// as q, k and v are: in tensors of their own, or in one.
void add_viewed(std::vector<Example>& all) {
  for (Example& e : def::attention().examples()) {
    Attention attrs = e.attrs.as<Attention>();
    if (attrs.views.empty()) continue;
    const Signature s{&def::attention_grad(), e.attrs, e.in, {}, ""};
    const AttentionSizes z = attention_sizes(s);
    const Type o{DType::f32, {z.n, z.t, z.a, z.k}}, lse{DType::f32, {z.n, z.a, z.t}};
    const std::vector<Type> in = operand_types(s);
    HeadViews gradients;
    const bool heads_first = !attrs.result_views.empty();
    const bool in_one = e.label.starts_with("in_one");
    for (size_t i = 0; i < 3; ++i) {
      const StridedView* const view = attrs.views.of(i);
      const Shape tensor = in_one && i > 0 ? Shape{} : e.in[i].shape;
      if (heads_first || in_one) gradients.set(i, {view->offset, tensor, view->strides});
    }
    Type laid = o;
    if (heads_first) {
      laid.shape = {z.n, z.a, z.t, z.k};
      attrs.views.set(z.operands(), permuted(dense_view(laid.shape), {0, 2, 1, 3}));
    }
    attrs.result_views = gradients;
    e.attrs = attrs;
    e.in.insert(e.in.end(), {laid, lse, o});
    if (all.size() % 2 == 0) e.in.push_back(lse);
    all.push_back(std::move(e));
  }
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
  add_viewed(all);
  return all;
}

}  // namespace

const OpDef& def::attention_grad() {
  static const OpDef d{.name = "attention_grad",
                       .attrs = +[] { return Attrs(Attention{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .reference = reference,
                       .viewed = viewed_attention,
                       .cost = cost,
                       .examples = examples,
                       .precision = OpDef::Precision::low,
                       .matrix_work = true};
  return d;
}

AttentionSizes attention_grad_sizes(const Signature& s) {
  AttentionSizes z = attention_sizes(s);
  z.at.o = head_view(s, z.operands(), z.queries());
  z.at.dout = head_view(s, z.operands() + 2, z.queries());
  if (z.packed) {
    z.at.dq = z.at.q, z.at.dk = z.at.k, z.at.dv = z.at.v;
    return z;
  }
  const std::vector<Shape> shapes = gradient_shapes(z);
  z.at.dq = result_view(s, 0, shapes[0]).view;
  z.at.dk = result_view(s, 1, shapes[1]).view;
  z.at.dv = result_view(s, 2, shapes[2]).view;
  return z;
}

}  // namespace ebb::ops
