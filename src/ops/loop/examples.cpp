#include <algorithm>

#include "ops/loop/op.h"
#include "ops/prim/slice_examples.h"

namespace ebb::ops {
namespace {

using Over = LoopReduction::Over;
constexpr LoopReduction row_sum = {Over::row}, pixel_sum = {Over::pixels},
                        group_sum = {Over::groups};

Scalar in(int64_t i) { return Scalar::input(i); }
Type f32(Shape s) { return {DType::f32, std::move(s)}; }

const Example& labelled(const std::vector<Example>& all, std::string_view label) {
  return *std::ranges::find(all, label, &Example::label);
}

// The example `of` with the attributes that `change` makes of its own.
template <class Change>
void add_changed(std::vector<Example>& out, const char* label, std::string_view of,
                 const Change& change) {
  Example e = labelled(out, of);
  Loop a = e.attrs.as<Loop>();
  change(a);
  e.label = label;
  e.attrs = a;
  out.push_back(e);
}

// With segmented operands and results.
void add_segmented(std::vector<Example>& out, const char* label, std::string_view of,
                   const Segments& p) {
  const std::vector<Type> whole = labelled(out, of).in;
  add_changed(out, label, of, [&](Loop& a) { a.segments = p; });
  std::vector<Type>& types = out.back().in;
  types.clear();
  for (size_t i = 0; i < whole.size(); ++i)
    for (size_t k = 0; k < (p.has_in(i) ? p.widths.size() : 1); ++k) {
      types.push_back(whole[i]);
      if (p.has_in(i)) types.back().shape[-1] = p.widths[k];
    }
}

// ---- maps --------------------------------------------------------------------------------------

// Operands x, y of the space's shape and coefficients; two results.
struct MapCase {
  const char* label;
  Shape shape, coefficients;
};

void add_maps(std::vector<Example>& out) {
  const MapCase cases[] = {
      {"map", {2, 6, 5, 24}, {2, 1, 1, 24}},
      {"map_of_three", {3, 7, 40}, {1, 1, 40}},
      {"map_wide", {2, 8, 8, 64}, {2, 1, 1, 64}},
      {"map_of_channels", {2, 5, 24}, {24}},
      {"map_odd", {3, 5, 13}, {}},
      {"map_of_images", {2, 9, 32}, {2, 1, 1}},
      {"map_row", {48}, {48}},
      {"map_same_shape", {5, 3, 16}, {5, 3, 16}},
      {"map_empty", {0, 16}, {16}},
      {"map_small", {3, 7}, {7}},
      {"map_one_column", {2, 5, 6, 1}, {2, 5, 6, 1}},
      {"map_one_column_of_images", {2, 5, 6, 1}, {2, 1, 1, 1}},
      {"map_coefficients", {3, 5, 48}, {3, 1, 48}},
      {"map_coefficients_odd", {3, 5, 13}, {3, 1, 13}},
      {"map_coefficients_of_rows", {7, 24}, {7, 1}},
  };
  const Scalar x = in(0), y = in(1), k = in(2);
  const Scalar results[] = {x * sigmoid(y) + k, x * k - y};
  for (const MapCase& c : cases)
    out.push_back({.label = c.label,
                   .attrs = Loop{.expr = Expr(3, results),
                                 .shape = c.shape.sizes(),
                                 .results = {{DType::f32}, {DType::bf16}}},
                   .in = {f32(c.shape), f32(c.shape), f32(c.coefficients)}});
  add_segmented(out, "map_cut", "map", {{8, 16}, {}, {0}});
  add_segmented(out, "map_segmented", "map", {{16, 8}, {0}, {}});
  add_segmented(out, "map_both", "map_of_three", {{8, 24, 8}, {0, 1}, {0, 1}});
  add_segmented(out, "map_steps", "map_wide", {{24, 40}, {1}, {1}});
  add_segmented(out, "map_odd_border", "map_of_channels", {{7, 17}, {0}, {0}});
  add_segmented(out, "map_odd_segments", "map_odd", {{1, 12}, {0, 1}, {1}});
  add_segmented(out, "map_border_of_four", "map_of_images", {{12, 20}, {1}, {0}});
  add_segmented(out, "map_segments_of_row", "map_row", {{16, 32}, {0}, {1}});
  add_segmented(out, "map_segments_of_same_shape", "map_same_shape", {{8, 8}, {0}, {0, 1}});
  add_segmented(out, "map_empty_segments", "map_empty", {{8, 8}, {0}, {0}});
  // y is operand 1, the coefficients are 2
  const AsSlices slice_cases[] = {
      {"map_slices", "map_coefficients", 144, {{2, 96}}},
      {"map_columns_unaligned", "map_coefficients", 147, {{2, 50}}},
      {"map_columns_of_two", "map_coefficients", 96, {{1, 48}, {2, 24}}},
      {"map_slices_odd", "map_coefficients_odd", 17, {{1, 2}}},
      {"map_columns_of_one_row", "map_row", 100, {{1, 11}}},
      {"map_columns_of_width_one", "map_coefficients_of_rows", 24, {{2, 5}}},
      {"map_slices_and_segments", "map_segmented", 72, {{2, 24}}},
      {"map_columns_of_one_column", "map_one_column", 2, {{1, 1}}},
      {"map_columns_of_one_column_and_images", "map_one_column_of_images", 2, {{1, 0}}},
  };
  for (const AsSlices& c : slice_cases) out.push_back(as_slices<Loop>(out, c));
}

// The last two results of one dtype, side by side.
void add_concatenated(std::vector<Example>& out, const char* label, std::string_view of) {
  add_changed(out, label, of, [](Loop& a) {
    a.results.items[a.results.size() - 2].dtype = a.results.items.back().dtype;
    a.concatenated = 2;
  });
}

void add_concatenated_maps(std::vector<Example>& out) {
  const std::pair<const char*, const char*> cases[] = {
      {"map_concatenated", "map"},
      {"map_concatenated_odd", "map_odd"},
      {"map_concatenated_row", "map_row"},
      {"map_concatenated_same_shape", "map_same_shape"},
      {"map_concatenated_empty", "map_empty"},
      {"map_concatenated_one_column", "map_one_column"},
      {"map_concatenated_segmented", "map_segmented"},
      {"map_concatenated_slices", "map_columns_of_two"},
      {"map_concatenated_steps", "map_wide"},
  };
  for (const auto& [label, of] : cases) add_concatenated(out, label, of);
  add_changed(out, "map_last_three_of_four", "map_of_three", [](Loop& a) {
    const Scalar x = in(0), y = in(1), k = in(2);
    const Scalar results[] = {y * k, x * sigmoid(y) + k, x * k - y, x - k};
    a.expr = Expr(3, results);
    a.results = {{DType::f32}, {DType::f16}, {DType::f16}, {DType::f16}};
    a.concatenated = 3;
  });
}

// ---- rows --------------------------------------------------------------------------------------

// Two phases of reductions, of which the second uses the first; both are also results.
Loop layer_norm(const Shape& shape, DType dtype) {
  const double inv = 1.0 / static_cast<double>(std::max<int64_t>(shape[-1], 1));
  const Scalar x = in(0), gamma = in(1), mean = in(2) * inv, var = in(3) * inv;
  const Scalar results[] = {x, (x - mean) * (x - mean), (x - mean) * rsqrt(var + 1e-3) * gamma,
                            mean, var};
  return {.expr = Expr(4, results),
          .reductions = {row_sum, row_sum},
          .shape = shape.sizes(),
          .results = {{dtype}, {DType::f32, Extent::row}, {DType::f32, Extent::row}}};
}

// A norm's gradient: two sums at once of two tensors, and two results.
Loop norm_gradient(const Shape& shape) {
  const double inv = 1.0 / static_cast<double>(shape[-1]);
  const Scalar x = in(0), dy = in(1), rstd = in(2), gamma = in(3), s = in(4), p = in(5);
  const Scalar d = dy * gamma;
  const Scalar dx = (d - s * inv - x * (p * inv)) * rstd;
  const Scalar results[] = {d, d * x, dx, dx * gamma};
  return {.expr = Expr(6, results),
          .reductions = {row_sum, row_sum},
          .shape = shape.sizes(),
          .results = {{DType::f32}, {DType::bf16}}};
}

Loop softmax(const Shape& shape) {
  const Scalar x = in(0), most = in(1), sum = in(2);
  const Scalar results[] = {x, exp(x - most), exp(x - most) / sum};
  return {.expr = Expr(3, results),
          .reductions = {{Over::row, ReduceKind::max}, row_sum},
          .shape = shape.sizes(),
          .results = {{DType::f32}}};
}

// A norm's complete gradient: with the column sums for gamma and beta.
Loop with_partials(const Shape& shape, int64_t partial_rows) {
  Loop a = norm_gradient(shape);
  std::vector<Scalar> x;
  for (int64_t i = 0; i < a.expr.inputs(); ++i) x.push_back(in(i));
  std::vector<Scalar> results = a.expr.apply(x);
  results.push_back(in(1));
  results.push_back(in(1) * in(0) * in(2));
  a.expr = Expr(a.expr.inputs(), results);
  for (int k = 0; k < 2; ++k) a.results.push_back({DType::f32, Extent::partial});
  a.partial_rows = partial_rows;
  return a;
}

// Joins what came before a sum: y = x + g h is written and summed.
Loop residual(const Shape& shape) {
  const double inv = 1.0 / static_cast<double>(shape[-1]);
  const Scalar y = in(0) + in(1) * in(2), squares = in(3);
  const Scalar results[] = {y * y, y, y * rsqrt(squares * inv + 1e-3) * in(1)};
  return {.expr = Expr(4, results),
          .reductions = {row_sum},
          .shape = shape.sizes(),
          .results = {{DType::f32}, {DType::f16}}};
}

void add_row_norms(std::vector<Example>& out) {
  const auto norm = [&](const char* label, const Shape& s, DType dtype) {
    out.push_back(
        {.label = label, .attrs = layer_norm(s, dtype), .in = {f32(s), f32(Shape({s[-1]}))}});
  };
  norm("rows", {3, 5, 64}, DType::bf16);
  norm("rows_odd", {2, 9, 37}, DType::f32);
  norm("rows_width_of_dit", {9, 1152}, DType::bf16);
  norm("rows_prime", {3, 4099}, DType::f16);
  norm("rows_one", {1, 2048}, DType::bf16);
  norm("rows_of_one", {5, 1}, DType::f32);
  norm("rows_longest", {2, 16384}, DType::bf16);
  norm("rows_too_long", {2, 16385}, DType::bf16);
  norm("rows_many", {1037, 72}, DType::bf16);
  norm("rows_empty", {0, 96}, DType::f32);
}

void add_rows(std::vector<Example>& out) {
  add_row_norms(out);
  const auto gradient = [&](const char* label, const Shape& s, int64_t partial_rows = 0) {
    out.push_back({.label = label,
                   .attrs = partial_rows ? with_partials(s, partial_rows) : norm_gradient(s),
                   .in = {f32(s), f32(s), f32({s[0], s[1], 1}), f32({s[0], 1, s[2]})}});
  };
  gradient("rows_gradient", {2, 7, 384});
  gradient("rows_gradient_odd", {3, 5, 131});
  gradient("rows_gradient_wide", {2, 2, 3072});
  gradient("partials", {2, 8, 384}, 4);
  gradient("partial_odd", {3, 6, 131}, 3);
  gradient("partial_short", {5, 6, 72}, 6);
  gradient("partial_of_one", {2, 3, 200}, 1);
  gradient("partial_long", {2, 2, 8192}, 2);
  gradient("partial_too_long", {1, 2, 16384}, 2);
  out.push_back({.label = "softmax", .attrs = softmax({7, 1001}), .in = {f32({7, 1001})}});
  const Type y = f32({2, 11, 200});
  out.push_back(
      {.label = "rows_residual", .attrs = residual(y.shape), .in = {y, f32({2, 1, 200}), y}});
  const AsSlices slice_cases[] = {
      {"rows_slices", "rows_residual", 600, {{1, 200}}},
      {"rows_columns", "rows_residual", 424, {{0, 224}, {1, 0}, {2, 24}}},
      {"rows_columns_unaligned", "rows_residual", 611, {{1, 203}}},
      {"rows_slices_odd", "rows_gradient_odd", 263, {{1, 132}, {3, 1}}},
      {"rows_slices_of_partial", "partials", 1152, {{0, 384}, {2, 5}, {3, 768}}},
      {"rows_columns_of_one_row", "rows_one", 4096, {{0, 2048}}},
  };
  for (const AsSlices& c : slice_cases) out.push_back(as_slices<Loop>(out, c));
  add_concatenated(out, "rows_concatenated", "rows_gradient");
  add_concatenated(out, "row_values_concatenated", "rows");
  add_concatenated(out, "partials_concatenated", "partials");
}

// ---- swapped operands --------------------------------------------------------------------------

// x, its partners, cos, sin: a rotation; its partners are x with swapped runs.
Loop rotation(const Shape& shape, int64_t run) {
  const Scalar results[] = {in(0) * in(2) + in(1) * in(3)};
  return {.expr = Expr(4, results),
          .shape = shape.sizes(),
          .results = {{DType::bf16}},
          .swaps = {{1, run}}};
}

// x, its partners, gamma, its partners, cos, sin: the rotation of an RMS norm.
Loop rotated_norm(const Shape& shape, int64_t run) {
  const Scalar rstd = rsqrt(in(6) * (1.0 / static_cast<double>(shape[-1])) + 1e-3);
  const Scalar results[] = {in(0) * in(0), rstd * (in(0) * in(2) * in(4) + in(1) * in(3) * in(5))};
  return {.expr = Expr(7, results),
          .reductions = {row_sum},
          .shape = shape.sizes(),
          .results = {{DType::bf16}},
          .swaps = {{1, run}, {3, run}}};
}

// Operands of rotated_norm(): its weights have the shape `gamma`.
std::vector<Type> rotated_norm_operands(const Shape& s, const Shape& gamma) {
  const Type x = f32(s), table = f32({1, s[1], 1, s[-1]});
  return {x, x, f32(gamma), f32(gamma), table, table};
}

void add_rotations(std::vector<Example>& out) {
  const auto add = [&](const std::string& label, const Shape& s, int64_t run) {
    const std::vector<Type> in = rotated_norm_operands(s, Shape({s[-1]}));
    out.push_back({.label = "rotation_" + label,
                   .attrs = rotation(s, run),
                   .in = {in[0], in[1], in[4], in[5]}});
    out.push_back({.label = "rotated_norm_" + label, .attrs = rotated_norm(s, run), .in = in});
  };
  add("interleaved", {2, 5, 3, 64}, 1);
  add("half_split", {2, 5, 3, 64}, 32);
  add("of_three", {1, 7, 2, 24}, 3);
  add("odd", {1, 3, 2, 70}, 35);
  add("of_pairs", {1, 3, 2, 72}, 2);
  add("wide", {1, 3, 1, 1024}, 512);
}

// Norms over all heads with their rotation, and their gradients: rows of two dims.
void add_rows_of_heads(std::vector<Example>& out) {
  const auto add = [&](const std::string& label, const Shape& s, int64_t run) {
    Loop a = rotated_norm(s, run);
    a.row_dims = 2;
    out.push_back({.label = "rotated_norm_of_heads_" + label,
                   .attrs = a,
                   .in = rotated_norm_operands(s, {s[-2], s[-1]})});
  };
  add("interleaved", {2, 5, 3, 64}, 1);
  add("half_split", {2, 5, 6, 64}, 32);
  add("odd", {1, 3, 5, 70}, 35);
  add("wide", {1, 3, 24, 128}, 64);
  add("of_one", {2, 3, 1, 128}, 64);
  const auto gradient = [&](const std::string& label, const Shape& s, int64_t partial_rows) {
    Loop a = partial_rows ? with_partials(s, partial_rows) : norm_gradient(s);
    a.row_dims = 2;
    out.push_back({.label = "gradient_of_heads_" + label,
                   .attrs = a,
                   .in = {f32(s), f32(s), f32({s[0], s[1], 1, 1}), f32({s[-2], s[-1]})}});
  };
  gradient("whole", {2, 7, 6, 64}, 0);
  gradient("odd", {3, 5, 3, 37}, 0);
  gradient("partial", {2, 8, 6, 64}, 4);
  add_changed(out, "statistics_of_heads", "rows", [](Loop& a) {
    a.shape = {3, 5, 4, 16};
    a.row_dims = 2;
  });
  out.back().in = {f32({3, 5, 4, 16}), f32({1, 16})};
  // what differs from head to head, but not within one, has no vectors: no generated kernel
  add_changed(out, "numbers_of_heads", "statistics_of_heads", [](Loop&) {});
  out.back().in = {f32({3, 5, 4, 16}), f32({4, 1})};
}

// Operands that are some heads, or some tokens, of a larger tensor.
void add_ranges(std::vector<Example>& out) {
  const auto ranged = [&](const char* label, const char* of, std::initializer_list<size_t> operands,
                          const Slices& slices) {
    add_changed(out, label, of, [&](Loop& a) { a.slices = slices; });
    size_t i = 0;
    for (const size_t k : operands) {
      const int64_t more = 5;
      out.back().in[k].shape[slices.dim(i++)] += more;
    }
  };
  const Shape s = {2, 5, 3, 64};
  ranged("heads_of_rotation", "rotation_half_split", {0, 1},
         {{0, 1}, {2, 2}, {2 + s[2], 2 + s[2]}, {{-2, -2}}});
  ranged("tokens_of_rotation", "rotation_interleaved", {0, 1, 2, 3},
         {{0, 1, 2, 3}, {5, 5, 1, 0}, {10, 10, 6, 5}, {{-3, -3, -3, -3}}});
  ranged("tokens_of_rotated_norm", "rotated_norm_half_split", {0, 1, 4, 5},
         {{0, 1, 4, 5}, {0, 0, 5, 2}, {5, 5, 10, 7}, {{-3, -3, -3, -3}}});
  ranged("heads_of_rotated_norm", "rotated_norm_of_heads_interleaved", {0, 1},
         {{0, 1}, {3, 3}, {6, 6}, {{-2, -2}}});
  ranged("columns_of_heads", "rotated_norm_of_heads_half_split", {0, 3},
         {{0, 3}, {5, 0}, {5 + 64, 64}});
  ranged("columns_and_heads", "gradient_of_heads_partial", {0, 1, 3},
         {{0, 1, 3}, {1, 0, 5}, {7, 64, 11}, {{-2, -1, -2}}});
}

// Text and image tokens: x and its partners in segments, gamma of each, tables of all.
void add_tokens(std::vector<Example>& out) {
  const auto add = [&](const char* label, const char* of, const std::vector<int64_t>& widths) {
    add_changed(out, label, of, [&](Loop& a) {
      a.segments = {.widths = widths, .segmented_in = {0, 1, 2, 3}, .segmented_out = {}, .dim = -3};
    });
    std::vector<Type> in;
    for (size_t k = 0; k < 6; ++k) {
      const Type& t = out.back().in[k];
      if (k >= 4) in.push_back(t);
      for (size_t w = 0; k < 4 && w < widths.size(); ++w) {
        Shape s = t.shape;
        if (k < 2) s[-3] = widths[w];
        if (k >= 2) s = {1, s.rank() > 1 ? s[-2] : 1, s[-1]};
        in.push_back(f32(s));
      }
    }
    out.back().in = in;
  };
  add("tokens_interleaved", "rotated_norm_interleaved", {2, 3});
  add("tokens_of_three", "rotated_norm_half_split", {1, 2, 2});
  add("tokens_of_heads", "rotated_norm_of_heads_half_split", {4, 1});
  add("tokens_odd", "rotated_norm_of_heads_odd", {1, 2});
}

// ---- pixels ------------------------------------------------------------------------------------

double inverse_of(const Shape& s, int64_t groups) {
  return static_cast<double>(groups * s[0]) / static_cast<double>(std::max<int64_t>(s.numel(), 1));
}

// x, gamma, beta: a group norm with SiLU, its statistics and coefficients.
Loop group_norm(const Shape& shape, int64_t groups, DType dtype) {
  const double inv = inverse_of(shape, groups);
  const Scalar x = in(0), mean = in(4) * inv, rstd = rsqrt(in(6) * inv + 1e-3);
  const Scalar scale = rstd * in(1), y = x * scale + (in(2) - mean * scale);
  const Scalar results[] = {x,    in(3), (x - mean) * (x - mean), in(5), y * sigmoid(y), scale,
                            mean, rstd};
  constexpr LoopResult f32_channel = {DType::f32, Extent::channel};
  return {.expr = Expr(7, results),
          .reductions = {pixel_sum, group_sum, pixel_sum, group_sum},
          .shape = shape.sizes(),
          .groups = groups,
          .results = {{dtype}, f32_channel, f32_channel, {DType::bf16, Extent::channel}}};
}

// x: itself and 1 where 1 / deviation is a positive number, else zeros. It is one of images without
// a deviation too, though their means are rounded.
Loop has_deviation(const Shape& shape, int64_t groups) {
  const double inv = inverse_of(shape, groups);
  const Scalar x = in(0), mean = in(2) * inv, is_one = less(0.0, rsqrt(in(4) * inv + 1e-6));
  const Scalar results[] = {x, in(1), (x - mean) * (x - mean), in(3), x * is_one, is_one};
  return {.expr = Expr(5, results),
          .reductions = {pixel_sum, group_sum, pixel_sum, group_sum},
          .shape = shape.sizes(),
          .groups = groups,
          .results = {{DType::f32}, {DType::f32, Extent::channel}}};
}

// dy, x, mean, rstd, gamma, residual: the gradient of a group norm with SiLU, added to another, and
// the sum of its result over the pixels.
Loop group_norm_gradient(const Shape& shape, int64_t groups, DType dtype) {
  const double inv = inverse_of(shape, groups);
  const Scalar dy = in(0), x = in(1), mean = in(2), rstd = in(3), gamma = in(4);
  const Scalar s1 = in(6), s2 = in(7), u = in(8), w = in(9);
  const Scalar y = (x - mean) * rstd * gamma, s = sigmoid(y), d = dy * (s + y * s * (1.0 - s));
  const Scalar slope = w * rstd * rstd * rstd * -inv, offset = u * rstd * -inv - mean * slope;
  const Scalar dx = d * gamma * rstd + x * slope + offset + in(5);
  const Scalar results[] = {d, d * (x - mean), s1 * gamma, s2 * gamma, dx, dx, s2 * rstd, in(10)};
  constexpr LoopResult f32_channel = {DType::f32, Extent::channel};
  return {.expr = Expr(11, results),
          .reductions = {pixel_sum, pixel_sum, group_sum, group_sum, pixel_sum},
          .shape = shape.sizes(),
          .groups = groups,
          .results = {{dtype}, f32_channel, f32_channel}};
}

void add_group_norms(std::vector<Example>& out) {
  const auto norm = [&](const char* label, const Shape& s, int64_t groups, DType dtype) {
    const Type c = f32(Shape({s[-1]}));
    out.push_back({.label = label, .attrs = group_norm(s, groups, dtype), .in = {f32(s), c, c}});
  };
  norm("pixels", {2, 8, 8, 64}, 8, DType::bf16);
  norm("pixels_odd", {2, 5, 7, 12}, 4, DType::f32);
  norm("pixels_odd_channels", {3, 11, 9}, 3, DType::f16);
  norm("groups_of_three", {2, 9, 3, 96}, 32, DType::bf16);
  norm("groups_of_one", {2, 4, 4, 6}, 6, DType::f32);
  norm("one_group", {2, 13, 40}, 1, DType::f32);
  norm("one_pixel", {3, 1, 1, 16}, 2, DType::f32);
  norm("many_pixels", {1, 67, 61, 16}, 2, DType::f32);
  norm("pixels_wide", {1, 2, 3, 1280}, 32, DType::bf16);
  norm("no_images", {0, 4, 4, 8}, 2, DType::f32);
  const auto gradient = [&](const char* label, const Shape& s, int64_t groups, DType dtype) {
    Loop a = group_norm_gradient(s, groups, dtype);
    const Type x = f32(s), k = f32(shape_of(a, Extent::channel)), c = f32(Shape({s[-1]}));
    out.push_back({.label = label, .attrs = a, .in = {x, x, k, k, c, x}});
  };
  gradient("pixels_gradient", {2, 8, 8, 64}, 8, DType::bf16);
  gradient("pixels_gradient_odd", {2, 5, 7, 12}, 4, DType::f32);
  gradient("pixels_gradient_odd_channels", {3, 11, 9}, 3, DType::f32);
  gradient("gradient_of_one_pixel", {3, 1, 1, 16}, 2, DType::f32);
  gradient("gradient_groups_of_three", {1, 9, 3, 96}, 32, DType::f16);
  gradient("gradient_many_pixels", {1, 59, 31, 8}, 1, DType::bf16);
}

void add_pixels(std::vector<Example>& out) {
  add_group_norms(out);
  add_segmented(out, "pixels_segmented", "pixels", {{40, 24}, {0}, {}});
  add_segmented(out, "pixels_segmented_odd", "pixels_odd", {{5, 7}, {0}, {}});
  add_segmented(out, "segmented_across_groups", "groups_of_three", {{64, 32}, {0}, {0}});
  add_segmented(out, "gradient_segmented", "pixels_gradient", {{24, 40}, {1}, {0}});
  add_segmented(out, "gradient_three_segments", "pixels_gradient", {{8, 16, 40}, {0, 1, 5}, {0}});
  const AsSlices slice_cases[] = {
      {"pixels_slices", "pixels_gradient", 192, {{2, 64}, {4, 128}}},
      {"pixels_slices_odd", "pixels_gradient_odd_channels", 31, {{2, 1}, {3, 22}}},
      {"pixels_slices_and_segments", "pixels_segmented", 128, {{1, 64}, {2, 0}}},
      {"slices_of_images", "pixels", 128, {{0, 64}}},
  };
  for (const AsSlices& c : slice_cases) out.push_back(as_slices<Loop>(out, c));
  add_concatenated(out, "gradient_concatenated", "pixels_gradient");
  add_concatenated(out, "gradient_concatenated_odd", "pixels_gradient_odd_channels");
  add_concatenated(out, "gradient_concatenated_segmented", "gradient_segmented");
  const auto large_values = [&](const char* label, double width) {
    const Shape s = {2, 9, 7, 12};
    out.push_back({.label = label,
                   .attrs = has_deviation(s, 4),
                   .in = {f32(s)},
                   .low = 30000,
                   .high = 30000 + width});
  };
  large_values("constant", 0);
  large_values("nearly_constant", 0.01);
}

}  // namespace

std::vector<Example> loop_examples() {
  std::vector<Example> out;
  add_maps(out);
  add_concatenated_maps(out);
  add_rows(out);
  add_rotations(out);
  add_rows_of_heads(out);
  add_ranges(out);
  add_tokens(out);
  add_pixels(out);
  return out;
}

}  // namespace ebb::ops
