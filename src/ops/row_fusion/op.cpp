#include "ops/row_fusion/op.h"

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ops/expressions.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice_examples.h"

namespace ebb::ops {
namespace {

Shape shape_of(const RowFusion& a, Extent per) {
  Shape s(a.shape);
  if (per == Extent::row) s[-1] = 1;
  if (per == Extent::partial) s[-2] /= a.partial_rows;
  return s;
}

// The inputs as the expression reads them.
std::vector<Type> operands(const Signature& s) {
  return slice_types(s.as<RowFusion>().slices, s.in, "row_fusion");
}

// Terms take earlier reductions only, and per-row scalars nothing that changes along the row.
void check_order(const Signature& s, size_t reductions, const std::vector<Extent>& extents) {
  const auto& a = s.as<RowFusion>();
  const std::vector<Type> in = operands(s);
  for (size_t k = 0; k < reductions + extents.size(); ++k) {
    const bool term = k < reductions, row = !term && extents[k - reductions] == Extent::row;
    if (!term && !row) continue;
    const std::vector<bool> used = inputs_of(a.expr, k, k + 1);
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      require(!term || i < in.size() + k, "row_fusion: term ", k,
              " may only use the reductions before it  at ", s.at);
      require(!row || i >= in.size() || in[i].shape.rank() == 0 || in[i].shape[-1] == 1,
              "row_fusion: output ", k - reductions, " is a number a row but takes ", in[i],
              "  at ", s.at);
    }
  }
}

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<RowFusion>();
  const size_t reductions = maxima_of(a).size();
  const auto dtypes = words(a.dtypes);
  const std::vector<Extent> extents = extents_of(a);
  require(!a.shape.empty() && reductions > 0, "row_fusion: needs a shape and reductions  at ",
          s.at);
  require(a.expr.inputs() == static_cast<int64_t>(s.in.size() + reductions),
          "row_fusion: the expression takes ", a.expr.inputs(), " inputs (got ", s.in.size(),
          " and ", reductions, " reductions)  at ", s.at);
  require(dtypes.size() == extents.size() && reductions + dtypes.size() == a.expr.results().size(),
          "row_fusion: the expression gives ", a.expr.results().size(), " results (for ",
          reductions, " reductions and ", dtypes.size(), " outputs)  at ", s.at);
  const Shape shape(a.shape);
  for (const Type& t : operands(s))
    require(broadcastable(t.shape, shape), "row_fusion: ", t, " does not broadcast to ", shape,
            "  at ", s.at);
  check_order(s, reductions, extents);
  std::vector<Type> out;
  for (size_t k = 0; k < dtypes.size(); ++k) {
    const DType dtype = parse_dtype(dtypes[k]);
    require(extents[k] != Extent::partial || (dtype == DType::f32 && a.partial_rows > 0 &&
                                              shape.rank() > 1 && shape[-2] % a.partial_rows == 0),
            "row_fusion: sums of ", a.partial_rows, " rows need f32 and a multiple of rows (got ",
            dtype, ", ", shape, ")  at ", s.at);
    out.push_back({dtype, shape_of(a, extents[k])});
  }
  return out;
}

// [...,T,C] to sums of `partial_rows` rows each, [...,T/partial_rows,C].
Value partials(Value v, int64_t partial_rows) {
  Shape out = v.shape();
  out[-2] /= partial_rows;
  std::vector<int64_t> split = out.sizes();
  split.insert(split.end() - 1, partial_rows);
  return reshape(sum(reshape(v, Shape(split)), {-2}), out);
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<RowFusion>();
  const std::vector<bool> maximum = maxima_of(a);
  const auto dtypes = words(a.dtypes);
  std::vector<Value> known = slice_values(a.slices, {in.begin(), in.end()}), out;
  const auto last = static_cast<int64_t>(a.shape.size()) - 1;
  for (size_t t = 0; t < maximum.size(); ++t) {
    const OneResult p = one_result(a.expr, t);
    known.push_back(
        reduce(g, {p.expr, {last}, maximum[t] ? "max" : "sum", 1, a.shape}, p.of(known))[0]);
  }
  const std::vector<Extent> extents = extents_of(a);
  for (size_t k = 0; k < dtypes.size(); ++k) {
    const OneResult p = one_result(a.expr, maximum.size() + k);
    const Shape shape = shape_of(a, extents[k] == Extent::row ? Extent::row : Extent::element);
    const Value v = pointwise(g, {p.expr, shape.sizes(), std::string(dtypes[k])}, p.of(known))[0];
    out.push_back(extents[k] == Extent::partial ? partials(v, a.partial_rows) : v);
  }
  return out;
}

Cost cost(const Signature& s) {
  const auto& a = s.as<RowFusion>();
  Cost c;
  for (const Type& t : operands(s)) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = a.expr.flops() * static_cast<double>(Shape(a.shape).numel());
  return c;
}

// ---- examples ------------------------------------------------------------------------------

Scalar in(int64_t i) { return Scalar::input(i); }

// Two phases of reductions, of which the second uses the first; both are also outputs.
RowFusion layer_norm_rows(Shape shape, const std::string& dtype) {
  const double inv = 1.0 / static_cast<double>(std::max<int64_t>(shape[-1], 1));
  const Scalar x = in(0), gamma = in(1), mean = in(2) * inv, var = in(3) * inv;
  const Scalar results[] = {x, (x - mean) * (x - mean), (x - mean) * rsqrt(var + 1e-3) * gamma,
                            mean, var};
  return {Expr(4, results), "sum,sum", shape.sizes(), dtype + ",f32,f32", "element,row,row"};
}

// A norm's gradient: two sums at once of two tensors, and two results.
RowFusion gradient_rows(const Shape& shape) {
  const double inv = 1.0 / static_cast<double>(shape[-1]);
  const Scalar x = in(0), dy = in(1), rstd = in(2), gamma = in(3), s = in(4), p = in(5);
  const Scalar d = dy * gamma;
  const Scalar dx = (d - s * inv - x * (p * inv)) * rstd;
  const Scalar results[] = {d, d * x, dx, dx * gamma};
  return {Expr(6, results), "sum,sum", shape.sizes(), "f32,bf16", "element,element"};
}

RowFusion softmax_rows(const Shape& shape) {
  const Scalar x = in(0), most = in(1), sum = in(2);
  const Scalar results[] = {x, exp(x - most), exp(x - most) / sum};
  return {Expr(3, results), "max,sum", shape.sizes(), "f32", "element"};
}

// A norm's complete gradient: with the column sums for gamma and beta.
RowFusion rows_with_partials(const Shape& shape, int64_t partial_rows) {
  RowFusion a = gradient_rows(shape);
  std::vector<Scalar> x;
  for (int64_t i = 0; i < a.expr.inputs(); ++i) x.push_back(in(i));
  std::vector<Scalar> results = a.expr.apply(x);
  results.push_back(in(1));
  results.push_back(in(1) * in(0) * in(2));
  a.expr = Expr(a.expr.inputs(), results);
  a.dtypes += ",f32,f32";
  a.extents += ",partial,partial";
  a.partial_rows = partial_rows;
  return a;
}

// Joins what came before a sum: y = x + g h is written and summed.
RowFusion residual_rows(const Shape& shape) {
  const double inv = 1.0 / static_cast<double>(shape[-1]);
  const Scalar y = in(0) + in(1) * in(2), squares = in(3);
  const Scalar results[] = {y * y, y, y * rsqrt(squares * inv + 1e-3) * in(1)};
  return {Expr(4, results), "sum", shape.sizes(), "f32,f16", "element,element"};
}

const AsSlices slice_cases[] = {
    {"slices", "residual", 600, {{1, 200}}},
    {"columns_of_rows", "residual", 424, {{0, 224}, {1, 0}, {2, 24}}},
    {"columns_unaligned", "residual", 611, {{1, 203}}},
    {"slices_odd", "gradient_odd", 263, {{1, 132}, {3, 1}}},
    {"slices_of_partial", "partials", 1152, {{0, 384}, {2, 5}, {3, 768}}},
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
                            int64_t partial_rows = 0) {
    out.push_back({.label = label,
                   .attrs = partial_rows ? rows_with_partials({n, t, c}, partial_rows)
                                         : gradient_rows({n, t, c}),
                   .in = {f32({n, t, c}), f32({n, t, c}), f32({n, t, 1}), f32({n, 1, c})}});
  };
  gradient("gradient", 2, 7, 384);
  gradient("gradient_odd", 3, 5, 131);
  gradient("gradient_wide", 2, 2, 3072);
  gradient("partials", 2, 8, 384, 4);
  gradient("partial_odd", 3, 6, 131, 3);
  gradient("partial_short", 5, 6, 72, 6);
  gradient("partial_of_one", 2, 3, 200, 1);
  gradient("partial_long", 2, 2, 8192, 2);
  gradient("partial_too_long", 1, 2, 16384, 2);
  out.push_back({.label = "softmax", .attrs = softmax_rows({7, 1001}), .in = {f32({7, 1001})}});
  const Type y = f32({2, 11, 200});
  out.push_back(
      {.label = "residual", .attrs = residual_rows(y.shape), .in = {y, f32({2, 1, 200}), y}});
  for (const AsSlices& c : slice_cases) out.push_back(as_slices<RowFusion>(out, c));
  return out;
}

}  // namespace

std::vector<bool> maxima_of(const RowFusion& rows) {
  std::vector<bool> out;
  for (const std::string_view w : words(rows.reductions)) {
    require(w == "sum" || w == "max", "row_fusion: reductions must be sum or max (got '", w, "')");
    out.push_back(w == "max");
  }
  return out;
}

std::vector<Extent> extents_of(const RowFusion& rows) {
  std::vector<Extent> out;
  for (const std::string_view w : words(rows.extents)) {
    require(w == "element" || w == "row" || w == "partial",
            "row_fusion: outputs are per element, row or partial_rows (got '", w, "')");
    out.push_back(w == "element" ? Extent::element : w == "row" ? Extent::row : Extent::partial);
  }
  return out;
}

const OpDef& def::row_fusion() {
  static const OpDef d{.name = "row_fusion",
                       .attrs = +[] { return Attrs(RowFusion{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
