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
#include "ops/prim/strided.h"

namespace ebb::ops {

namespace {

AttentionSizes packed_sizes(const Signature& s) {
  const Type& x = s.in[0];
  require(x.shape.rank() == 5 && x.shape[2] == 3 && is_float(x.dtype), s.op->name,
          ": q, k and v in one must be floats [N,T,3,A,K]  qkv: ", x, "  at ", s.at);
  AttentionSizes z{.n = x.shape[0],
                   .t = x.shape[1],
                   .s = x.shape[1],
                   .a = x.shape[3],
                   .k = x.shape[4],
                   .key_heads = x.shape[3],
                   .packed = true};
  const int64_t row = 3 * z.a * z.k;
  z.at.q = {0, z.t * row, row, z.k};
  z.at.k = z.at.v = z.at.q;
  z.at.k.offset = z.a * z.k, z.at.v.offset = 2 * z.a * z.k;
  return z;
}

HeadView head_view(const StridedView& v) {
  return {v.offset, v.strides[0], v.strides[1], v.strides[2]};
}

AttentionSizes separate_sizes(const Signature& s, const std::vector<Type>& in) {
  const std::string_view op = s.op->name;
  require(in.size() >= 3, op, ": takes q, k and v (got ", in.size(), " inputs)  at ", s.at);
  const Type &q = in[0], &k = in[1], &v = in[2];
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
  AttentionSizes z{.n = q.shape[0],
                   .t = q.shape[1],
                   .s = k.shape[1],
                   .a = heads,
                   .k = q.shape[3],
                   .key_heads = key_heads};
  const HeadViews& views = s.as<Attention>().views;
  const auto view = [&](size_t i) {
    return head_view(views.of(i) ? *views.of(i) : dense_view(in[i].shape));
  };
  z.at.q = view(0), z.at.k = view(1), z.at.v = view(2);
  return z;
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

std::vector<Type> operand_types(const Signature& s) {
  std::vector<Type> in = s.in;
  for (const auto& [i, view] : s.as<Attention>().views.items()) {
    require(i < in.size() && view.shape.rank() == 4 && view.strides.size() == 4 &&
                (view.strides[3] == 1 || view.shape[3] == 1) && view.offset >= 0 &&
                std::ranges::min(view.strides) >= 0 && extent(view) <= in[i].shape.numel(),
            s.op->name, ": the view ", view.shape, " of operand ", i, " must lie in it (offset ",
            view.offset, ", strides ", Shape(view.strides), ")  ", s.text(), "  at ", s.at);
    in[i].shape = view.shape;
  }
  return in;
}

ResultView result_view(const Signature& s, size_t i, const Shape& whole) {
  const HeadViews& views = s.as<Attention>().result_views;
  const StridedView* const view = views.of(i);
  if (view == nullptr) return {head_view(dense_view(whole)), whole};
  ResultView r{{}, view->shape};
  for (size_t j = i; r.tensor.rank() == 0 && j > 0 && views.of(j - 1) != nullptr;)
    r.tensor = views.of(--j)->shape;
  const StridedView here{view->offset, whole, view->strides};
  require(r.tensor.rank() > 0 && here.strides.size() == 4 && here.strides[3] == 1 &&
              here.offset >= 0 && std::ranges::min(here.strides) >= 0 &&
              extent(here) <= r.tensor.numel(),
          s.op->name, ": the view ", whole, " of result ", i, " must lie in ", r.tensor,
          " (offset ", here.offset, ", strides ", Shape(here.strides), ")  at ", s.at);
  r.view = head_view(here);
  return r;
}

std::optional<Attrs> viewed_attention(const Signature& s, const UseViews& views) {
  Attention attrs = s.as<Attention>();
  const AttentionSizes z = attention_sizes(s);
  const bool gradient = s.op != &def::attention();
  const auto lies_in_rows = [](const StridedView& v) {
    return v.shape.rank() == 4 && (v.strides[3] == 1 || v.shape[3] == 1);
  };
  const auto reads = [&](const auto& of) {
    const auto& [i, view] = of;
    const bool heads = i < 3 || (gradient && (i == z.operands() || i == z.operands() + 2));
    return heads && lies_in_rows(view);
  };
  const auto writes = [&](const auto& of) {
    return of.first < (gradient ? 3 : 1) && lies_in_rows(of.second);
  };
  if (z.packed || !std::ranges::all_of(views.in, reads) || !std::ranges::all_of(views.out, writes))
    return {};
  for (const auto& [i, view] : views.in) attrs.views.set(i, view);
  bool first = true;
  for (const auto& [i, view] : views.out) {
    const bool in_that_of_the_first = views.one_tensor && !first;
    attrs.result_views.set(
        i, {view.offset, in_that_of_the_first ? Shape{} : views.tensors.at(i), view.strides});
    first = false;
  }
  return attrs;
}

AttentionSizes attention_sizes(const Signature& s) {
  const auto& attrs = s.as<Attention>();
  require(!s.in.empty(), s.op->name, ": takes q, k and v (got no input)  at ", s.at);
  AttentionSizes z = attrs.packed ? packed_sizes(s) : separate_sizes(s, operand_types(s));
  require(!attrs.packed || attrs.views.empty(), s.op->name,
          ": q, k and v in one are views already (views ", attrs.views.text(), ")  at ", s.at);
  z.causal = attrs.causal, z.bias = attrs.bias, z.key_lengths = attrs.key_lengths;
  z.viewed = !attrs.views.empty() || !attrs.result_views.empty();
  check_options(z, s);
  require(z.s > 0 && z.k > 0, s.op->name, ": needs keys and a width  q: ", s.in[0], "  at ", s.at);
  z.scale = attrs.scale == 0 ? 1 / std::sqrt(static_cast<double>(z.k)) : attrs.scale;
  z.at.o = z.queries();
  if (s.op == &def::attention()) z.at.o = result_view(s, 0, {z.n, z.t, z.a, z.k}).view;
  return z;
}

namespace {

std::vector<Type> infer(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  require(s.in.size() == z.operands(), "attention: takes ", z.operands(), " inputs (got ",
          s.in.size(), ")  at ", s.at);
  for (const auto& i : s.as<Attention>().result_views.items())
    require(i.index == 0, "attention: has no view of result ", i.index, "  at ", s.at);
  const Shape o = result_view(s, 0, {z.n, z.t, z.a, z.k}).tensor;
  require(o.numel() == z.n * z.t * z.a * z.k, "attention: o must fill its tensor ", o, "  at ",
          s.at);
  return {{s.in[0].dtype, o}, {DType::f32, {z.n, z.a, z.t}}};
}

// The same use of whole tensors.
Signature without_views(const Signature& s) {
  Signature whole = s;
  whole.in = operand_types(s);
  Attention attrs = s.as<Attention>();
  attrs.views = {}, attrs.result_views = {};
  whole.attrs = attrs;
  whole.out = s.op->infer(whole);
  return whole;
}
std::vector<Value> operands(const Signature& s, std::span<const Value> in) {
  std::vector<Value> out(in.begin(), in.end());
  for (const auto& [i, view] : s.as<Attention>().views.items()) out[i] = strided(in[i], view);
  return out;
}

// For kernels without views, without packed QKV or without grouped heads.
std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const AttentionSizes z = attention_sizes(s);
  if (z.viewed) {
    const Signature whole = without_views(s);
    std::vector<Value> out = g.add(*s.op, whole.attrs, operands(s, in));
    if (const StridedView* const o = s.as<Attention>().result_views.of(0))
      out[0] = unstrided(out[0], {o->offset, whole.out[0].shape, o->strides}, o->shape);
    return out;
  }
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
  const Matmul by_rows{.trans_b = true, .dtype = DType::f32};
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
      DType::f32);
  return sum_to(ds, b.bias.shape());
}

std::vector<Value> vjp(const VjpCall& c);

// Of a use with views: that of whole tensors, moved to where these have them.
std::vector<Value> viewed_vjp(const VjpCall& c) {
  const Signature whole = without_views(c.sig);
  const std::vector<Value> in = operands(c.sig, c.in);
  std::vector<Value> out(c.out.begin(), c.out.end()), dout(c.dout.begin(), c.dout.end());
  const auto& attrs = c.sig.as<Attention>();
  if (const StridedView* const o = attrs.result_views.of(0)) {
    const StridedView view{o->offset, whole.out[0].shape, o->strides};
    out[0] = strided(out[0], view);
    if (dout[0]) dout[0] = strided(dout[0], view);
  }
  std::vector<Value> dx = vjp({c.graph, whole, in, out, dout});
  for (const auto& [i, view] : attrs.views.items()) dx[i] = unstrided(dx[i], view, c.in[i].shape());
  return dx;
}

std::vector<Value> vjp(const VjpCall& c) {
  const AttentionSizes z = attention_sizes(c.sig);
  if (z.viewed) return viewed_vjp(c);
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
    const HeadView& at = which == 0 ? z.at.q : which == 1 ? z.at.k : z.at.v;
    const int64_t head = which == 0 ? a : a / z.group();
    return in[z.packed ? 0 : which].v.data() + at.offset + n * at.n + t * at.t + head * at.a;
  };
  for (int64_t i = 0; i < z.n * z.a * z.t; ++i) {
    const int64_t t = i % z.t, a = i / z.t % z.a, n = i / (z.t * z.a);
    const double* q = row(0, n, t, a);
    double* o = out[0].v.data() + z.at.o.offset + n * z.at.o.n + t * z.at.o.t + a * z.at.o.a;
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
  for (const Type& t : operand_types(s)) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  const AttentionSizes z = attention_sizes(s);
  c.flops = 4.0 * static_cast<double>(z.n * z.a * z.pairs()) * static_cast<double>(z.k);
  return c;
}

}  // namespace

const OpDef& def::attention() {
  static const OpDef d{.name = "attention",
                       .attrs = +[] { return Attrs(Attention{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .reference = reference,
                       .viewed = viewed_attention,
                       .cost = cost,
                       .examples = attention_examples,
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
