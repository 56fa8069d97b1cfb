#include <optional>

#include "backend/cuda/generated/spatial_fusion.h"
#include "ir/kernel.h"
#include "ops/prim/cuda_slices.h"
#include "ops/spatial_fusion/op.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::SpatialForm;
using ebb::cuda::SpatialLayout;
using ebb::cuda::SpatialPass;

// None where an input changes with the pixels but does not lie like the images: as columns.
std::optional<SpatialForm> form_of(const Signature& use) {
  const auto& a = use.as<SpatialFusion>();
  const Signature s = unfused_views(use);
  const Shape shape(a.shape);
  SpatialForm f;
  f.expr = a.expr;
  f.images = shape[0];
  f.channels = shape[-1];
  f.pixels = shape.slice(1, shape.rank() - 1).numel();
  f.groups = a.groups;
  const std::vector<int64_t> widths = slices_pass(a.slices, a.segments, use.in).form.width;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const Type& t = s.in[i];
    const bool slices = i < widths.size() && widths[i] > 0;
    const bool streams = varies_over_pixels(t.shape, shape);
    if (streams && (slices || t.shape.numel() != shape.numel() || !is_float(t.dtype)))
      return std::nullopt;
    const std::vector<int64_t> strides = broadcast_strides(t.shape, shape);
    const int64_t image = slices ? strides.front() / t.shape[-1] * widths[i] : strides.front();
    f.in.push_back({t.dtype, streams, image, strides.back()});
  }
  for (const bool pixels : over_pixels(a))
    f.reductions.push_back(pixels ? ebb::cuda::SpatialReduction::pixels
                                  : ebb::cuda::SpatialReduction::groups);
  for (const Type& t : s.out) f.out.push_back(t.dtype);
  f.per_channel = per_channel(a);
  f.concatenated = a.concatenated;
  f.segments.widths = a.segments.widths;
  for (size_t i = 0; i < s.in.size(); ++i) f.segments.segmented_in.push_back(a.segments.has_in(i));
  for (size_t k = 0; k < s.out.size(); ++k)
    f.segments.segmented_out.push_back(a.segments.has_out(k));
  return f;
}

// None: there is nothing to do, or no kernel for it.
std::optional<SpatialForm> form_with_kernels(const Signature& s) {
  const int64_t elements = Shape(s.as<SpatialFusion>().shape).numel();
  if (elements == 0 || elements >= int64_t{1} << 31) return {};
  return form_of(s);
}

std::vector<SpatialLayout> layouts(const Signature& s, const Device& device) {
  const std::optional<SpatialForm> form = form_with_kernels(s);
  return form ? SpatialPass::layouts(*form, ebb::cuda::of(device)) : std::vector<SpatialLayout>{};
}

// The addresses of all outputs: of the last tensor, of type `last`, those of what lies in it.
std::vector<void*> outputs(std::span<void* const> out, const Type& last, int64_t concatenated) {
  std::vector<void*> at(out.begin(), out.end());
  if (concatenated == 0) return at;
  const int64_t bytes = last.shape[-1] / concatenated * size_of(last.dtype);
  for (int64_t k = 1; k < concatenated; ++k)
    at.push_back(static_cast<char*>(out.back()) + k * bytes);
  return at;
}

bool supports(const Signature& s, const Device& device) {
  if (Shape(s.as<SpatialFusion>().shape).numel() == 0) return true;
  const std::optional<SpatialForm> form = form_with_kernels(s);
  return form && SpatialPass::fits(*form, ebb::cuda::of(device));
}

std::vector<Tune> space(const Signature& s, const Device& device) {
  constexpr size_t most = 6;
  std::vector<Tune> out;
  for (const SpatialLayout& l : layouts(s, device))
    if (out.size() < most)
      out.push_back({{{"tile", l.tile}, {"cluster", l.cluster}, {"threads", l.threads}}});
  if (out.empty()) out.emplace_back();
  return out;
}

Program prepare(const Signature& s, const Tune& tune, Device& device) {
  const std::optional<SpatialForm> form = form_with_kernels(s);
  if (!form) return {0, [](const Call&) {}};
  const SpatialPass pass(*form, tune.value("tile", 0), tune.value("cluster", 0),
                         tune.value("threads", 0), ebb::cuda::of(device));
  const auto& a = s.as<SpatialFusion>();
  return {0, [=, slices = slices_pass(a.slices, a.segments, s.in), type = s.out.back(),
              concatenated = a.concatenated](const Call& c) {
            pass.run(slices.in(c.in), outputs(c.out, type, concatenated));
          }};
}

}  // namespace

std::vector<Kernel> spatial_fusion() {
  return {{.op = "spatial_fusion",
           .name = "spatial_fusion_ptx",
           .supports = supports,
           .prepare = prepare,
           .space = space,
           .in_place = true,
           .may_alias = +[](const Signature& s, size_t out, size_t in) {
             const auto& a = s.as<SpatialFusion>();
             return same_segment(a.segments, out, in) && !a.slices.of(operand_of(a.segments, in));
           }}};
}

}  // namespace ebb::ops::cuda
