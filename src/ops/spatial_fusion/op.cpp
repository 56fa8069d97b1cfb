#include "ops/spatial_fusion/op.h"

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "ir/expr_inputs.h"
#include "ops/expressions.h"
#include "ops/group_affine_grad/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/slice_examples.h"

namespace ebb::ops {
namespace {

Shape channels_of(Shape s) {
  for (int64_t d = 1; d + 1 < s.rank(); ++d) s[d] = 1;
  return s;
}

// Terms take earlier reductions only; numbers of channels take nothing that changes with the
// pixels.
void check_order(const Signature& s, const std::vector<bool>& pixels,
                 const std::vector<bool>& channel) {
  const auto& a = s.as<SpatialFusion>();
  for (size_t k = 0; k < pixels.size() + channel.size(); ++k) {
    const bool term = k < pixels.size();
    const bool whole = term ? !pixels[k] : channel[k - pixels.size()];
    const std::vector<bool> used = inputs_of(a.expr, k, k + 1);
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i]) continue;
      require(!term || i < s.in.size() + k, "spatial_fusion: term ", k,
              " may only use the reductions before it  at ", s.at);
      require(!whole || i >= s.in.size() || !varies_over_pixels(s.in[i].shape, Shape(a.shape)),
              "spatial_fusion: ", term ? "term " : "output ", term ? k : k - pixels.size(),
              " is a number a channel but takes ", s.in[i], "  at ", s.at);
    }
  }
}

std::vector<Type> infer_whole(const Signature& s) {
  const auto& a = s.as<SpatialFusion>();
  const std::vector<bool> pixels = over_pixels(a), channel = per_channel(a);
  const auto dtypes = words(a.dtypes);
  const Shape shape(a.shape);
  require(shape.rank() > 2 && !pixels.empty() && a.groups > 0 && shape[-1] % a.groups == 0,
          "spatial_fusion: needs reductions, and a shape of pixels and channels that ", a.groups,
          " divides (got ", shape, ")  at ", s.at);
  require(a.expr.inputs() == static_cast<int64_t>(s.in.size() + pixels.size()),
          "spatial_fusion: the expression takes ", a.expr.inputs(), " inputs (got ", s.in.size(),
          " and ", pixels.size(), " reductions)  at ", s.at);
  require(
      dtypes.size() == channel.size() && pixels.size() + dtypes.size() == a.expr.results().size(),
      "spatial_fusion: the expression gives ", a.expr.results().size(), " results (for ",
      pixels.size(), " reductions and ", dtypes.size(), " outputs)  at ", s.at);
  for (const Type& t : s.in)
    require(broadcastable(t.shape, shape), "spatial_fusion: ", t, " does not broadcast to ", shape,
            "  at ", s.at);
  check_order(s, pixels, channel);
  std::vector<Type> out;
  for (size_t k = 0; k < dtypes.size(); ++k)
    out.push_back({parse_dtype(dtypes[k]), channel[k] ? channels_of(shape) : shape});
  return out;
}

// The last of the outputs as one.
std::vector<Type> concatenated_types(const SpatialFusion& a, std::vector<Type> out) {
  if (a.concatenated == 0) return out;
  const std::vector<bool> channel = per_channel(a);
  const auto all = static_cast<int64_t>(channel.size());
  require(2 <= a.concatenated && a.concatenated <= all, "spatial_fusion: ", a.concatenated,
          " outputs cannot lie side by side (there are ", all, ")");
  for (int64_t k = 1; k <= a.concatenated; ++k)
    require(channel[static_cast<size_t>(all - k)] && out.end()[-k] == out.back(),
            "spatial_fusion: outputs side by side must be alike and of channels (got ",
            out.end()[-k], ")");
  out.resize(out.size() - static_cast<size_t>(a.concatenated - 1));
  out.back().shape[-1] *= a.concatenated;
  return out;
}

std::vector<Value> concatenated_values(const SpatialFusion& a, std::vector<Value> out) {
  if (a.concatenated == 0) return out;
  const auto first = out.end() - a.concatenated;
  const Value whole = concat({first, out.end()}, -1);
  out.erase(first, out.end());
  out.push_back(whole);
  return out;
}

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<SpatialFusion>();
  const Segments& p = a.segments;
  check_segments(p, static_cast<size_t>(a.expr.inputs()), words(a.dtypes).size(), "spatial_fusion");
  check_disjoint(p, a.slices, "spatial_fusion");
  if (p.widths.empty() && a.slices.operands.empty() && a.concatenated == 0) return infer_whole(s);
  const Signature whole = unfused_views(s);
  const Shape shape(a.shape);
  require(p.widths.empty() || p.width() == shape[-1], "spatial_fusion: segments (", p.width(),
          ") must fill the channels of ", shape, "  at ", s.at);
  for (const int64_t i : p.segmented_in)
    require(whole.in[static_cast<size_t>(i)].shape == shape, "spatial_fusion: input ", i,
            " is segmented and must be of shape ", shape, "  at ", s.at);
  const std::vector<bool> channel = per_channel(a);
  for (const int64_t k : p.segmented_out)
    require(!channel[static_cast<size_t>(k)], "spatial_fusion: output ", k,
            " is a per-channel value and has no segments  at ", s.at);
  return concatenated_types(a, split_types(p, whole.out));
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<SpatialFusion>();
  const std::vector<bool> pixels = over_pixels(a), channel = per_channel(a);
  const auto dtypes = words(a.dtypes);
  const Shape shape(a.shape), small = channels_of(shape);
  std::vector<int64_t> dims;
  for (int64_t d = 1; d + 1 < shape.rank(); ++d) dims.push_back(d);
  std::vector<Value> known = slice_values(a.slices, concat_values(a.segments, in)), out;
  for (size_t t = 0; t < pixels.size(); ++t) {
    const OneResult p = one_result(a.expr, t);
    if (pixels[t]) {
      known.push_back(reduce(g, {p.expr, dims, "sum", 1, a.shape}, p.of(known))[0]);
      continue;
    }
    const Value term = pointwise(g, {p.expr, small.sizes(), "f32"}, p.of(known))[0];
    known.push_back(expand_groups(group_sums(term, a.groups), shape[-1]));
  }
  for (size_t k = 0; k < dtypes.size(); ++k) {
    const OneResult p = one_result(a.expr, pixels.size() + k);
    const Shape& of = channel[k] ? small : shape;
    out.push_back(pointwise(g, {p.expr, of.sizes(), std::string(dtypes[k])}, p.of(known))[0]);
  }
  return concatenated_values(a, split_values(a.segments, out));
}

Cost cost(const Signature& s) {
  const auto& a = s.as<SpatialFusion>();
  Cost c;
  for (const Type& t : unfused_views(s).in) c.bytes += static_cast<double>(t.bytes());
  for (const Type& t : s.out) c.bytes += static_cast<double>(t.bytes());
  c.flops = a.expr.flops() * static_cast<double>(Shape(a.shape).numel());
  return c;
}

// ---- examples -------------------------------------------------------------------------------

Scalar in(int64_t i) { return Scalar::input(i); }

double inverse_of(const Shape& s, int64_t groups) {
  return static_cast<double>(groups * s[0]) / static_cast<double>(std::max<int64_t>(s.numel(), 1));
}

// x, gamma, beta: a group norm with SiLU, its statistics and coefficients.
SpatialFusion norm_of(const Shape& shape, int64_t groups, const std::string& dtype) {
  const double inv = inverse_of(shape, groups);
  const Scalar x = in(0), mean = in(4) * inv, rstd = rsqrt(in(6) * inv + 1e-3);
  const Scalar scale = rstd * in(1), y = x * scale + (in(2) - mean * scale);
  const Scalar results[] = {x,    in(3), (x - mean) * (x - mean), in(5), y * sigmoid(y), scale,
                            mean, rstd};
  return {.expr = Expr(7, results),
          .reductions = "pixels,groups,pixels,groups",
          .shape = shape.sizes(),
          .groups = groups,
          .dtypes = dtype + ",f32,f32,bf16",
          .extents = "element,channel,channel,channel"};
}

// x: itself and 1 where 1 / deviation is a positive number, else zeros. It is one of images without
// a deviation too, though their means are rounded.
SpatialFusion has_deviation(const Shape& shape, int64_t groups) {
  const double inv = inverse_of(shape, groups);
  const Scalar x = in(0), mean = in(2) * inv, is_one = less(0.0, rsqrt(in(4) * inv + 1e-6));
  const Scalar results[] = {x, in(1), (x - mean) * (x - mean), in(3), x * is_one, is_one};
  return {.expr = Expr(5, results),
          .reductions = "pixels,groups,pixels,groups",
          .shape = shape.sizes(),
          .groups = groups,
          .dtypes = "f32,f32",
          .extents = "element,channel"};
}

// dy, x, mean, rstd, gamma, residual: the gradient of a group norm with SiLU, added to another, and
// the sum of its result over the pixels.
SpatialFusion gradient_of(const Shape& shape, int64_t groups, const std::string& dtype) {
  const double inv = inverse_of(shape, groups);
  const Scalar dy = in(0), x = in(1), mean = in(2), rstd = in(3), gamma = in(4);
  const Scalar s1 = in(6), s2 = in(7), u = in(8), w = in(9);
  const Scalar y = (x - mean) * rstd * gamma, s = sigmoid(y), d = dy * (s + y * s * (1.0 - s));
  const Scalar slope = w * rstd * rstd * rstd * -inv, offset = u * rstd * -inv - mean * slope;
  const Scalar dx = d * gamma * rstd + x * slope + offset + in(5);
  const Scalar results[] = {d, d * (x - mean), s1 * gamma, s2 * gamma, dx, dx, s2 * rstd, in(10)};
  return {.expr = Expr(11, results),
          .reductions = "pixels,pixels,groups,groups,pixels",
          .shape = shape.sizes(),
          .groups = groups,
          .dtypes = dtype + ",f32,f32",
          .extents = "element,channel,channel"};
}

const AsSlices slice_cases[] = {
    {"slices", "gradient", 192, {{2, 64}, {4, 128}}},
    {"slices_odd", "gradient_odd_channels", 31, {{2, 1}, {3, 22}}},
    {"slices_and_segments", "segmented", 128, {{1, 64}, {2, 0}}},
    {"slices_of_images", "norm", 128, {{0, 64}}},
};

// Examples of `out` with inputs and outputs that lie otherwise.
void add_rearranged(std::vector<Example>& out) {
  const auto labelled = [&](std::string_view label) {
    return *std::ranges::find(out, label, &Example::label);
  };
  const auto segmented = [&](const char* label, std::string_view of, Segments segments) {
    const Example full = labelled(of);
    Example e = full;
    auto a = e.attrs.as<SpatialFusion>();
    a.segments = std::move(segments);
    e.label = label;
    e.attrs = a;
    e.in.clear();
    for (size_t i = 0; i < full.in.size(); ++i)
      for (size_t k = 0; k < (a.segments.has_in(i) ? a.segments.widths.size() : 1); ++k) {
        e.in.push_back(full.in[i]);
        if (a.segments.has_in(i)) e.in.back().shape[-1] = a.segments.widths[k];
      }
    out.push_back(e);
  };
  segmented("segmented", "norm", {{40, 24}, {0}, {}});
  segmented("segmented_odd", "odd", {{5, 7}, {0}, {}});
  segmented("segmented_across_groups", "groups_of_three", {{64, 32}, {0}, {0}});
  segmented("gradient_segmented", "gradient", {{24, 40}, {1}, {0}});
  segmented("gradient_three_segments", "gradient", {{8, 16, 40}, {0, 1, 5}, {0}});
  for (const AsSlices& c : slice_cases) out.push_back(as_slices<SpatialFusion>(out, c));
  const auto concatenated = [&](const char* label, std::string_view of) {
    Example e = labelled(of);
    auto a = e.attrs.as<SpatialFusion>();
    a.concatenated = 2;
    e.label = label;
    e.attrs = a;
    out.push_back(e);
  };
  concatenated("gradient_concatenated", "gradient");
  concatenated("gradient_concatenated_odd", "gradient_odd_channels");
  concatenated("gradient_concatenated_segmented", "gradient_segmented");
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  std::vector<Example> out;
  const auto norm = [&](const char* label, Shape s, int64_t groups, const char* dtype) {
    const Type x = f32(s), c = f32({s[-1]});
    out.push_back({.label = label, .attrs = norm_of(s, groups, dtype), .in = {x, c, c}});
  };
  norm("norm", {2, 8, 8, 64}, 8, "bf16");
  norm("odd", {2, 5, 7, 12}, 4, "f32");
  norm("odd_channels", {3, 11, 9}, 3, "f16");
  norm("groups_of_three", {2, 9, 3, 96}, 32, "bf16");
  norm("groups_of_one", {2, 4, 4, 6}, 6, "f32");
  norm("one_group", {2, 13, 40}, 1, "f32");
  norm("one_pixel", {3, 1, 1, 16}, 2, "f32");
  norm("many_pixels", {1, 67, 61, 16}, 2, "f32");
  norm("wide", {1, 2, 3, 1280}, 32, "bf16");
  norm("no_images", {0, 4, 4, 8}, 2, "f32");
  const auto gradient = [&](const char* label, Shape s, int64_t groups, const char* dtype) {
    const Type x = f32(s), k = f32(channels_of(s)), c = f32({s[-1]});
    out.push_back(
        {.label = label, .attrs = gradient_of(s, groups, dtype), .in = {x, x, k, k, c, x}});
  };
  gradient("gradient", {2, 8, 8, 64}, 8, "bf16");
  gradient("gradient_odd", {2, 5, 7, 12}, 4, "f32");
  gradient("gradient_odd_channels", {3, 11, 9}, 3, "f32");
  gradient("gradient_of_one_pixel", {3, 1, 1, 16}, 2, "f32");
  gradient("gradient_groups_of_three", {1, 9, 3, 96}, 32, "f16");
  gradient("gradient_many_pixels", {1, 59, 31, 8}, 1, "bf16");
  add_rearranged(out);
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
  return out;
}

}  // namespace

std::vector<bool> over_pixels(const SpatialFusion& images) {
  std::vector<bool> out;
  for (const std::string_view w : words(images.reductions)) {
    require(w == "pixels" || w == "groups",
            "spatial_fusion: reductions are of pixels or groups (got '", w, "')");
    out.push_back(w == "pixels");
  }
  return out;
}

std::vector<bool> per_channel(const SpatialFusion& images) {
  std::vector<bool> out;
  for (const std::string_view w : words(images.extents)) {
    require(w == "element" || w == "channel",
            "spatial_fusion: outputs are per element or channel (got '", w, "')");
    out.push_back(w == "channel");
  }
  return out;
}

Signature unfused_views(const Signature& s) {
  Signature whole = s;
  SpatialFusion a = s.as<SpatialFusion>();
  whole.in =
      slice_types(a.slices, concat_types(a.segments, s.in, "spatial_fusion"), "spatial_fusion");
  a.segments = {};
  a.slices = {};
  a.concatenated = 0;
  whole.attrs = a;
  whole.out = infer(whole);
  return whole;
}

bool varies_over_pixels(const Shape& tensor, const Shape& shape) {
  for (int64_t d = 1; d + 1 < shape.rank(); ++d) {
    const int64_t own = d - shape.rank() + tensor.rank();
    if (shape[d] != 1 && own >= 0 && tensor[own] != 1) return true;
  }
  return false;
}

const OpDef& def::spatial_fusion() {
  static const OpDef d{.name = "spatial_fusion",
                       .attrs = +[] { return Attrs(SpatialFusion{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .cost = cost,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

}  // namespace ebb::ops
