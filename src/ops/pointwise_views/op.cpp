#include "ops/pointwise_parts/op.h"

#include "base/error.h"
#include "ops/prim/column_examples.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

Pointwise expression(const PointwiseParts& a) { return {a.expr, a.shape, a.dtypes}; }

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<PointwiseParts>();
  check_parts(a.parts, static_cast<size_t>(a.expr.inputs()), a.expr.results().size(),
              "pointwise_parts");
  const Signature whole = whole_of(s);
  const Shape shape(a.shape);
  require(a.parts.widths.empty() || (shape.rank() > 0 && shape[-1] == a.parts.width()),
          "pointwise_parts: parts (", a.parts.width(), ") must fill the last dim of ", shape,
          "  at ", s.at);
  require(whole.out[0].shape == shape, "pointwise_parts: operands must broadcast to ", shape,
          " (got ", whole.out[0].shape, ")  at ", s.at);
  check_apart(a.parts, a.columns, "pointwise_parts");
  for (size_t i = 0; i < whole.in.size(); ++i)
    require(!a.parts.joins(i) || whole.in[i].shape == shape, "pointwise_parts: operand ", i,
            " is in parts and must be of shape ", shape, " (got ", whole.in[i], ")  at ", s.at);
  return cut_types(a.parts, whole.out);
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<PointwiseParts>();
  const auto operands = column_values(a.columns, whole_values(a.parts, in));
  return cut_values(a.parts, pointwise(g, expression(a), operands));
}

Cost cost(const Signature& s) {
  const auto& a = s.as<PointwiseParts>();
  Cost c;
  for (const Type& t : whole_of(s).in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = a.expr.flops() * static_cast<double>(Shape(a.shape).numel());
  return c;
}

// ---- examples ------------------------------------------------------------------------------

// Operands x, y, c, of which x, y or none come in parts; two results, of which one, both or none
// leave in parts.
struct Case {
  const char* label;
  Shape shape, coefficients;
  Parts parts;
};

Example example(const Case& c) {
  const Scalar x = Scalar::input(0), y = Scalar::input(1), k = Scalar::input(2);
  const Scalar results[] = {x * sigmoid(y) + k, x * k - y};
  Example e{.label = c.label,
            .attrs = PointwiseParts{Expr(3, results), c.shape.sizes(), "f32,bf16", c.parts}};
  for (size_t i = 0; i < 2; ++i) {
    if (!c.parts.joins(i)) {
      e.in.push_back({DType::f32, c.shape});
      continue;
    }
    for (const int64_t w : c.parts.widths) {
      e.in.push_back({DType::f32, c.shape});
      e.in.back().shape[-1] = w;
    }
  }
  e.in.push_back({DType::f32, c.coefficients});
  return e;
}

// y is operand 1, c is 2.
const InColumns column_cases[] = {
    {"columns", "coefficients", 144, {{2, 96}}},
    {"columns_unaligned", "coefficients", 147, {{2, 50}}},
    {"columns_of_two", "coefficients", 96, {{1, 48}, {2, 24}}},
    {"columns_odd", "coefficients_odd", 17, {{1, 2}}},
    {"columns_of_one_row", "one_row_whole", 100, {{1, 11}}},
    {"columns_of_width_one", "coefficients_of_rows", 24, {{2, 5}}},
    {"columns_beside_parts", "joined", 72, {{2, 24}}},
    {"columns_of_one_column", "one_column_whole", 2, {{1, 1}}},
    {"columns_of_one_column_and_images", "one_column_of_images", 2, {{1, 0}}},
};

std::vector<Example> examples() {
  const Case cases[] = {
      {"cut", {2, 6, 5, 24}, {2, 1, 1, 24}, {{8, 16}, {}, {0}}},
      {"joined", {2, 6, 5, 24}, {2, 1, 1, 24}, {{16, 8}, {0}, {}}},
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
  for (const InColumns& c : column_cases) out.push_back(in_columns<PointwiseParts>(out, c));
  return out;
}

}  // namespace

Signature whole_of(const Signature& s) {
  const auto& a = s.as<PointwiseParts>();
  constexpr auto subject = "pointwise_parts";
  Signature out{&def::pointwise(),
                expression(a),
                column_types(a.columns, whole_types(a.parts, s.in, subject), subject),
                {},
                s.at};
  out.out = out.op->infer(out);
  return out;
}

const OpDef& def::pointwise_parts() {
  static const OpDef d{.name = "pointwise_parts",
                       .attrs = +[] { return Attrs(PointwiseParts{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
