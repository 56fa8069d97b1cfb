#include "ops/pointwise_views/op.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice_examples.h"

namespace ebb::ops {
namespace {

Pointwise expression(const PointwiseViews& a) { return {a.expr, a.shape, a.dtypes}; }

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<PointwiseViews>();
  check_segments(a.segments, static_cast<size_t>(a.expr.inputs()), a.expr.results().size(),
                 "pointwise_views");
  const Signature full = full_of(s);
  const Shape shape(a.shape);
  require(a.segments.widths.empty() || (shape.rank() > 0 && shape[-1] == a.segments.width()),
          "pointwise_views: segments (", a.segments.width(), ") must fill the last dim of ", shape,
          "  at ", s.at);
  require(full.out[0].shape == shape, "pointwise_views: operands must broadcast to ", shape,
          " (got ", full.out[0].shape, ")  at ", s.at);
  check_disjoint(a.segments, a.slices, "pointwise_views");
  for (size_t i = 0; i < full.in.size(); ++i)
    require(!a.segments.has_in(i) || full.in[i].shape == shape, "pointwise_views: operand ", i,
            " is segmented and must be of shape ", shape, " (got ", full.in[i], ")  at ", s.at);
  return split_types(a.segments, full.out);
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<PointwiseViews>();
  const auto operands = slice_values(a.slices, concat_values(a.segments, in));
  return split_values(a.segments, pointwise(g, expression(a), operands));
}

Cost cost(const Signature& s) {
  const auto& a = s.as<PointwiseViews>();
  Cost c;
  for (const Type& t : full_of(s).in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = a.expr.flops() * static_cast<double>(Shape(a.shape).numel());
  return c;
}

// ---- examples ------------------------------------------------------------------------------

// Operands x, y, c, of which x, y or none are segmented; two results, of which one, both or none
// are segmented.
struct Case {
  const char* label;
  Shape shape, coefficients;
  Segments segments;
};

Example example(const Case& c) {
  const Scalar x = Scalar::input(0), y = Scalar::input(1), k = Scalar::input(2);
  const Scalar results[] = {x * sigmoid(y) + k, x * k - y};
  Example e{.label = c.label,
            .attrs = PointwiseViews{Expr(3, results), c.shape.sizes(), "f32,bf16", c.segments}};
  for (size_t i = 0; i < 2; ++i) {
    if (!c.segments.has_in(i)) {
      e.in.push_back({DType::f32, c.shape});
      continue;
    }
    for (const int64_t w : c.segments.widths) {
      e.in.push_back({DType::f32, c.shape});
      e.in.back().shape[-1] = w;
    }
  }
  e.in.push_back({DType::f32, c.coefficients});
  return e;
}

// y is operand 1, c is 2.
const AsSlices slice_cases[] = {
    {"slices", "coefficients", 144, {{2, 96}}},
    {"columns_unaligned", "coefficients", 147, {{2, 50}}},
    {"columns_of_two", "coefficients", 96, {{1, 48}, {2, 24}}},
    {"slices_odd", "coefficients_odd", 17, {{1, 2}}},
    {"columns_of_one_row", "one_row_whole", 100, {{1, 11}}},
    {"columns_of_width_one", "coefficients_of_rows", 24, {{2, 5}}},
    {"slices_and_segments", "segmented", 72, {{2, 24}}},
    {"columns_of_one_column", "one_column_whole", 2, {{1, 1}}},
    {"columns_of_one_column_and_images", "one_column_of_images", 2, {{1, 0}}},
};

std::vector<Example> examples() {
  const Case cases[] = {
      {"cut", {2, 6, 5, 24}, {2, 1, 1, 24}, {{8, 16}, {}, {0}}},
      {"segmented", {2, 6, 5, 24}, {2, 1, 1, 24}, {{16, 8}, {0}, {}}},
      {"both", {3, 7, 40}, {1, 1, 40}, {{8, 24, 8}, {0, 1}, {0, 1}}},
      {"steps", {2, 8, 8, 64}, {2, 1, 1, 64}, {{24, 40}, {1}, {1}}},
      {"odd_border", {2, 5, 24}, {24}, {{7, 17}, {0}, {0}}},
      {"odd", {3, 5, 13}, {}, {{1, 12}, {0, 1}, {1}}},
      {"border_of_four", {2, 9, 32}, {2, 1, 1}, {{12, 20}, {1}, {0}}},
      {"one_row", {48}, {48}, {{16, 32}, {0}, {1}}},
      {"same_shape", {5, 3, 16}, {5, 3, 16}, {{8, 8}, {0}, {0, 1}}},
      {"empty", {0, 16}, {16}, {{8, 8}, {0}, {0}}},
      {"whole", {3, 7}, {7}, {}},
      {"one_row_whole", {48}, {48}, {}},
      {"one_column_whole", {2, 5, 6, 1}, {2, 5, 6, 1}, {}},
      {"one_column_of_images", {2, 5, 6, 1}, {2, 1, 1, 1}, {}},
      {"coefficients", {3, 5, 48}, {3, 1, 48}, {}},
      {"coefficients_odd", {3, 5, 13}, {3, 1, 13}, {}},
      {"coefficients_of_rows", {7, 24}, {7, 1}, {}},
  };
  std::vector<Example> out;
  for (const Case& c : cases) out.push_back(example(c));
  for (const AsSlices& c : slice_cases) out.push_back(as_slices<PointwiseViews>(out, c));
  return out;
}

}  // namespace

Signature full_of(const Signature& s) {
  const auto& a = s.as<PointwiseViews>();
  constexpr auto subject = "pointwise_views";
  Signature out{&def::pointwise(),
                expression(a),
                slice_types(a.slices, concat_types(a.segments, s.in, subject), subject),
                {},
                s.at};
  out.out = out.op->infer(out);
  return out;
}

const OpDef& def::pointwise_views() {
  static const OpDef d{.name = "pointwise_views",
                       .attrs = +[] { return Attrs(PointwiseViews{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
