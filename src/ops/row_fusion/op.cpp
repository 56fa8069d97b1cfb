#include "ops/rows/op.h"

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ops/expressions.h"
#include "ops/prim/column_examples.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

Shape shape_of(const Rows& a, Per per) {
  Shape s(a.shape);
  if (per == Per::row) s[-1] = 1;
  if (per == Per::stripe) s[-2] /= a.stripe;
  return s;
}

// The inputs as the expression reads them.
std::vector<Type> operands(const Signature& s) {
  return column_types(s.as<Rows>().columns, s.in, "rows");
}

// Terms take earlier totals only, and numbers of rows nothing that changes along the row.
void check_order(const Signature& s, size_t totals, const std::vector<Per>& per) {
  const auto& a = s.as<Rows>();
  const std::vector<Type> in = operands(s);
  for (size_t k = 0; k < totals + per.size(); ++k) {
    const bool term = k < totals, row = !term && per[k - totals] == Per::row;
    if (!term && !row) continue;
    const std::vector<bool> used = inputs_of(a.expr, k, k + 1);
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      require(!term || i < in.size() + k, "rows: term ", k,
              " may only use the totals before it  at ", s.at);
      require(!row || i >= in.size() || in[i].shape.rank() == 0 || in[i].shape[-1] == 1,
              "rows: output ", k - totals, " is a number a row but takes ", in[i], "  at ", s.at);
    }
  }
}

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<Rows>();
  const size_t totals = maxima_of(a).size();
  const auto dtypes = words(a.dtypes);
  const std::vector<Per> per = per_of(a);
  require(!a.shape.empty() && totals > 0, "rows: needs a shape and totals  at ", s.at);
  require(a.expr.inputs() == static_cast<int64_t>(s.in.size() + totals),
          "rows: the expression takes ", a.expr.inputs(), " inputs (got ", s.in.size(), " and ",
          totals, " totals)  at ", s.at);
  require(dtypes.size() == per.size() && totals + dtypes.size() == a.expr.results().size(),
          "rows: the expression gives ", a.expr.results().size(), " results (for ", totals,
          " totals and ", dtypes.size(), " outputs)  at ", s.at);
  const Shape shape(a.shape);
  for (const Type& t : operands(s))
    require(broadcastable(t.shape, shape), "rows: ", t, " does not broadcast to ", shape, "  at ",
            s.at);
  check_order(s, totals, per);
  std::vector<Type> out;
  for (size_t k = 0; k < dtypes.size(); ++k) {
    const DType dtype = parse_dtype(dtypes[k]);
    require(per[k] != Per::stripe || (dtype == DType::f32 && a.stripe > 0 && shape.rank() > 1 &&
                                      shape[-2] % a.stripe == 0),
            "rows: sums of ", a.stripe, " rows need f32 and a multiple of rows (got ", dtype, ", ",
            shape, ")  at ", s.at);
    out.push_back({dtype, shape_of(a, per[k])});
  }
  return out;
}

// [...,T,C] to sums of `stripe` rows each, [...,T/stripe,C].
Value stripes(Value v, int64_t stripe) {
  Shape out = v.shape();
  out[-2] /= stripe;
  std::vector<int64_t> split = out.sizes();
  split.insert(split.end() - 1, stripe);
  return reshape(sum(reshape(v, Shape(split)), {-2}), out);
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<Rows>();
  const std::vector<bool> maximum = maxima_of(a);
  const auto dtypes = words(a.dtypes);
  std::vector<Value> known = column_values(a.columns, {in.begin(), in.end()}), out;
  const auto last = static_cast<int64_t>(a.shape.size()) - 1;
  for (size_t t = 0; t < maximum.size(); ++t) {
    const OneResult p = one_result(a.expr, t);
    known.push_back(
        reduce(g, {p.expr, {last}, maximum[t] ? "max" : "sum", 1, a.shape}, p.of(known))[0]);
  }
  const std::vector<Per> per = per_of(a);
  for (size_t k = 0; k < dtypes.size(); ++k) {
    const OneResult p = one_result(a.expr, maximum.size() + k);
    const Shape shape = shape_of(a, per[k] == Per::row ? Per::row : Per::element);
    const Value v = pointwise(g, {p.expr, shape.sizes(), std::string(dtypes[k])}, p.of(known))[0];
    out.push_back(per[k] == Per::stripe ? stripes(v, a.stripe) : v);
  }
  return out;
}

Cost cost(const Signature& s) {
  const auto& a = s.as<Rows>();
  Cost c;
  for (const Type& t : operands(s)) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = a.expr.flops() * static_cast<double>(Shape(a.shape).numel());
  return c;
}

// ---- examples ------------------------------------------------------------------------------

Scalar in(int64_t i) { return Scalar::input(i); }

// Two rounds of sums, in which the second uses the first; both are also outputs.
Rows layer_norm_rows(Shape shape, const std::string& dtype) {
  const double inv = 1.0 / static_cast<double>(std::max<int64_t>(shape[-1], 1));
  const Scalar x = in(0), gamma = in(1), mean = in(2) * inv, var = in(3) * inv;
  const Scalar results[] = {x, (x - mean) * (x - mean), (x - mean) * rsqrt(var + 1e-3) * gamma,
                            mean, var};
  return {Expr(4, results), "sum,sum", shape.sizes(), dtype + ",f32,f32", "element,row,row"};
}

// A norm's gradient: two sums at once of two tensors, and two results.
Rows gradient_rows(const Shape& shape) {
  const double inv = 1.0 / static_cast<double>(shape[-1]);
  const Scalar x = in(0), dy = in(1), rstd = in(2), gamma = in(3), s = in(4), p = in(5);
  const Scalar d = dy * gamma;
  const Scalar dx = (d - s * inv - x * (p * inv)) * rstd;
  const Scalar results[] = {d, d * x, dx, dx * gamma};
  return {Expr(6, results), "sum,sum", shape.sizes(), "f32,bf16", "element,element"};
}

Rows softmax_rows(const Shape& shape) {
  const Scalar x = in(0), most = in(1), sum = in(2);
  const Scalar results[] = {x, exp(x - most), exp(x - most) / sum};
  return {Expr(3, results), "max,sum", shape.sizes(), "f32", "element"};
}

// The whole of a norm's gradient: with the sums for gamma and beta.
Rows striped_rows(const Shape& shape, int64_t stripe) {
  Rows a = gradient_rows(shape);
  std::vector<Scalar> x;
  for (int64_t i = 0; i < a.expr.inputs(); ++i) x.push_back(in(i));
  std::vector<Scalar> results = a.expr.apply(x);
  results.push_back(in(1));
  results.push_back(in(1) * in(0) * in(2));
  a.expr = Expr(a.expr.inputs(), results);
  a.dtypes += ",f32,f32";
  a.per += ",stripe,stripe";
  a.stripe = stripe;
  return a;
}

// Joins what came before a sum: y = x + g h is written and summed.
Rows residual_rows(const Shape& shape) {
  const double inv = 1.0 / static_cast<double>(shape[-1]);
  const Scalar y = in(0) + in(1) * in(2), squares = in(3);
  const Scalar results[] = {y * y, y, y * rsqrt(squares * inv + 1e-3) * in(1)};
  return {Expr(4, results), "sum", shape.sizes(), "f32,f16", "element,element"};
}

const InColumns column_cases[] = {
    {"columns", "residual", 600, {{1, 200}}},
    {"columns_of_rows", "residual", 424, {{0, 224}, {1, 0}, {2, 24}}},
    {"columns_unaligned", "residual", 611, {{1, 203}}},
    {"columns_odd", "gradient_odd", 263, {{1, 132}, {3, 1}}},
    {"columns_of_stripes", "stripes", 1152, {{0, 384}, {2, 5}, {3, 768}}},
    {"columns_of_one_row", "one_row", 4096, {{0, 2048}}},
};

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  std::vector<Example> out;
  const auto norm = [&](const char* label, Shape s, const std::string& dtype) {
    const Type x = f32(s), gamma = f32({s[-1]});
    out.push_back(
        {.label = label, .attrs = layer_norm_rows(std::move(s), dtype), .in = {x, gamma}});
  };
  norm("norm", {3, 5, 64}, "bf16");
  norm("odd", {2, 9, 37}, "f32");
  norm("width_of_dit", {9, 1152}, "bf16");
  norm("prime", {3, 4099}, "f16");
  norm("one_row", {1, 2048}, "bf16");
  norm("of_one", {5, 1}, "f32");
  norm("longest", {2, 16384}, "bf16");
  norm("too_long", {2, 16385}, "bf16");
  norm("many_rows", {1037, 72}, "bf16");
  norm("empty", {0, 96}, "f32");
  const auto gradient = [&](const char* label, int64_t n, int64_t t, int64_t c,
                            int64_t stripe = 0) {
    out.push_back({.label = label,
                   .attrs = stripe ? striped_rows({n, t, c}, stripe) : gradient_rows({n, t, c}),
                   .in = {f32({n, t, c}), f32({n, t, c}), f32({n, t, 1}), f32({n, 1, c})}});
  };
  gradient("gradient", 2, 7, 384);
  gradient("gradient_odd", 3, 5, 131);
  gradient("gradient_wide", 2, 2, 3072);
  gradient("stripes", 2, 8, 384, 4);
  gradient("stripes_odd", 3, 6, 131, 3);
  gradient("stripes_short", 5, 6, 72, 6);
  gradient("stripes_of_one", 2, 3, 200, 1);
  gradient("stripes_long", 2, 2, 8192, 2);
  gradient("stripes_too_long", 1, 2, 16384, 2);
  out.push_back({.label = "softmax", .attrs = softmax_rows({7, 1001}), .in = {f32({7, 1001})}});
  const Type y = f32({2, 11, 200});
  out.push_back(
      {.label = "residual", .attrs = residual_rows(y.shape), .in = {y, f32({2, 1, 200}), y}});
  for (const InColumns& c : column_cases) out.push_back(in_columns<Rows>(out, c));
  return out;
}

}  // namespace

std::vector<bool> maxima_of(const Rows& rows) {
  std::vector<bool> out;
  for (const std::string_view w : words(rows.totals)) {
    require(w == "sum" || w == "max", "rows: totals must be sum or max (got '", w, "')");
    out.push_back(w == "max");
  }
  return out;
}

std::vector<Per> per_of(const Rows& rows) {
  std::vector<Per> out;
  for (const std::string_view w : words(rows.per)) {
    require(w == "element" || w == "row" || w == "stripe",
            "rows: outputs are per element, row or stripe (got '", w, "')");
    out.push_back(w == "element" ? Per::element : w == "row" ? Per::row : Per::stripe);
  }
  return out;
}

const OpDef& def::rows() {
  static const OpDef d{.name = "rows",
                       .attrs = +[] { return Attrs(Rows{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
