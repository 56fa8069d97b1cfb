// Loops with reductions over pixels and groups of channels: a group norm, its gradient.
#include <algorithm>
#include <optional>

#include "backend/cuda/generated/pixels.h"
#include "ops/loop/cuda.h"

namespace ebb::ops::cuda {
namespace {

using codegen::PixelForm;
using codegen::PixelLayout;
using codegen::PixelReduction;
using ebb::cuda::PixelPass;

// None where an input changes with the pixels but does not lie like the images, as slices, or
// results that do are concatenated.
std::optional<PixelForm> form_of(const Signature& use) {
  const auto& a = use.as<Loop>();
  if (!a.swaps.empty() || a.segments.dim != -1) return std::nullopt;
  if (a.concatenated != 0 && a.results.items.back().extent != Extent::channel) return std::nullopt;
  const Signature s = without_views(use);
  const Shape shape(a.shape);
  PixelForm f;
  f.expr = a.expr;
  f.images = shape[0];
  f.channels = shape[-1];
  f.pixels = shape.slice(1, shape.rank() - 1).numel();
  f.groups = a.groups;
  const codegen::SlicesForm slices = slices_form(a.slices, a.segments, use.in);
  for (size_t i = 0; i < s.in.size(); ++i) {
    const Type& t = s.in[i];
    const bool streams = varies_over_pixels(t.shape, shape);
    if (streams && (slices.has(i) || t.shape.numel() != shape.numel() || !is_float(t.dtype)))
      return std::nullopt;
    const std::vector<int64_t> strides = broadcast_strides(t.shape, shape);
    const Pitch pitch = slices.has(i) ? slices.pitch[i] : Pitch{};
    f.in.push_back({t.dtype, streams, pitch.stride(strides.front()), strides.back(),
                    slices.has(i) ? slices.begin[i] : 0});
  }
  for (const LoopReduction& r : a.reductions)
    f.reductions.push_back(r.over == LoopReduction::Over::pixels ? PixelReduction::pixels
                                                                 : PixelReduction::groups);
  for (const LoopResult& r : a.results) {
    f.out.push_back(r.dtype);
    f.per_channel.push_back(r.extent == Extent::channel);
  }
  f.concatenated = a.concatenated;
  f.unaligned = !use.aligned;
  f.segments.widths = a.segments.widths;
  for (size_t i = 0; i < s.in.size(); ++i) f.segments.segmented_in.push_back(a.segments.has_in(i));
  for (size_t k = 0; k < s.out.size(); ++k)
    f.segments.segmented_out.push_back(a.segments.has_out(k));
  return f;
}

// None: there is nothing to do, or no kernel for it.
std::optional<PixelForm> form_with_kernels(const Signature& s) {
  const int64_t elements = Shape(s.as<Loop>().shape).numel();
  if (elements == 0 || elements >= int64_t{1} << 31) return {};
  return form_of(s);
}

std::vector<PixelLayout> layouts(const Signature& s, const Device& device) {
  const std::optional<PixelForm> form = form_with_kernels(s);
  return form ? PixelPass::layouts(*form, ebb::cuda::of(device)) : std::vector<PixelLayout>{};
}

bool supports(const Signature& s, const Device& device) {
  const auto& a = s.as<Loop>();
  if (kind_of(a) != LoopKind::pixels) return false;
  if (Shape(a.shape).numel() == 0)  // sums over no pixels are 0, which no thread block would write
    return std::ranges::all_of(s.out, [](const Type& t) { return t.shape.numel() == 0; });
  const std::optional<PixelForm> form = form_with_kernels(s);
  return form && PixelPass::fits(*form, ebb::cuda::of(device));
}

std::vector<Tune> space(const Signature& s, const Device& device) {
  constexpr size_t most = 6;
  std::vector<Tune> out;
  for (const PixelLayout& l : layouts(s, device))
    if (out.size() < most)
      out.push_back({{{"tile", l.tile}, {"cluster", l.cluster}, {"threads", l.threads}}});
  if (out.empty()) out.emplace_back();
  return out;
}

Program prepare(const Signature& s, const Tune& tune, Device& device) {
  const std::optional<PixelForm> form = form_with_kernels(s);
  if (!form) return {0, [](const Call&) {}};
  const PixelPass pass(*form, tune.value("tile", 0), tune.value("cluster", 0),
                       tune.value("threads", 0), ebb::cuda::of(device));
  return {0, [pass](const Call& c) { pass.run(c.in, c.out); }};
}

}  // namespace

Kernel loop_pixels() {
  Kernel k = loop_kernel("loop_pixels_ptx");
  k.supports = supports;
  k.prepare = prepare;
  k.space = space;
  return k;
}

}  // namespace ebb::ops::cuda
