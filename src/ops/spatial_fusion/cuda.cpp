#include <algorithm>
#include <optional>

#include "backend/cuda/images.h"
#include "ir/kernel.h"
#include "ops/images/op.h"
#include "ops/prim/cuda_columns.h"

namespace ebb::ops::cuda {
namespace {

using ebb::cuda::ImagesForm;
using ebb::cuda::ImagesLayout;
using ebb::cuda::ImagesPass;

// None where an input changes with the pixels but does not lie like the images: as columns.
std::optional<ImagesForm> form_of(const Signature& use) {
  const auto& a = use.as<Images>();
  const Signature s = whole_images(use);
  const Shape shape(a.shape);
  ImagesForm f;
  f.expr = a.expr;
  f.images = shape[0];
  f.channels = shape[-1];
  f.pixels = shape.slice(1, shape.rank() - 1).numel();
  f.groups = a.groups;
  const std::vector<int64_t> widths = columns_pass(a.columns, a.parts, use.in).form.width;
  for (size_t i = 0; i < s.in.size(); ++i) {
    const Type& t = s.in[i];
    const bool columns = i < widths.size() && widths[i] > 0;
    const bool streams = varies_over_pixels(t.shape, shape);
    if (streams && (columns || t.shape.numel() != shape.numel() || !is_float(t.dtype)))
      return std::nullopt;
    const std::vector<int64_t> strides = broadcast_strides(t.shape, shape);
    const int64_t image = columns ? strides.front() / t.shape[-1] * widths[i] : strides.front();
    f.in.push_back({t.dtype, streams, image, strides.back()});
  }
  for (const bool pixels : over_pixels(a))
    f.totals.push_back(pixels ? ebb::cuda::ImagesTotal::pixels : ebb::cuda::ImagesTotal::groups);
  for (const Type& t : s.out) f.out.push_back(t.dtype);
  f.per_channel = per_channel(a);
  f.beside = a.beside;
  f.parts.widths = a.parts.widths;
  for (size_t i = 0; i < s.in.size(); ++i) f.parts.joined.push_back(a.parts.joins(i));
  for (size_t k = 0; k < s.out.size(); ++k) f.parts.cut.push_back(a.parts.cuts(k));
  return f;
}

// None: there is nothing to do, or no kernel for it.
std::optional<ImagesForm> form_with_kernels(const Signature& s) {
  const int64_t elements = Shape(s.as<Images>().shape).numel();
  if (elements == 0 || elements >= int64_t{1} << 31) return {};
  return form_of(s);
}

std::vector<ImagesLayout> layouts(const Signature& s, const Device& device) {
  const std::optional<ImagesForm> form = form_with_kernels(s);
  return form ? ImagesPass::layouts(*form, ebb::cuda::of(device)) : std::vector<ImagesLayout>{};
}

// The addresses of all outputs: of the last tensor, of type `last`, those of what lies in it.
std::vector<void*> outputs(std::span<void* const> out, const Type& last, int64_t beside) {
  std::vector<void*> at(out.begin(), out.end());
  if (beside == 0) return at;
  const int64_t bytes = last.shape[-1] / beside * size_of(last.dtype);
  for (int64_t k = 1; k < beside; ++k) at.push_back(static_cast<char*>(out.back()) + k * bytes);
  return at;
}

bool supports(const Signature& s, const Device& device) {
  if (Shape(s.as<Images>().shape).numel() == 0) return true;
  const std::optional<ImagesForm> form = form_with_kernels(s);
  return form && ImagesPass::fits(*form, ebb::cuda::of(device));
}

std::vector<Tune> space(const Signature& s, const Device& device) {
  constexpr size_t most = 6;
  std::vector<Tune> out;
  for (const ImagesLayout& l : layouts(s, device))
    if (out.size() < most)
      out.push_back({{{"tile", l.tile}, {"cluster", l.cluster}, {"threads", l.threads}}});
  if (out.empty()) out.emplace_back();
  return out;
}

Program prepare(const Signature& s, const Tune& tune, Device& device) {
  const std::vector<ImagesLayout> all = layouts(s, device);
  if (all.empty()) return {0, [](const Call&) {}};
  auto chosen = std::find_if(all.begin(), all.end(), [&](const ImagesLayout& l) {
    return tune.value("tile", 0) == l.tile && tune.value("cluster", 0) == l.cluster &&
           tune.value("threads", 0) == l.threads;
  });
  if (chosen == all.end()) chosen = all.begin();
  const ImagesPass pass(*form_of(s), *chosen, ebb::cuda::of(device));
  const auto& a = s.as<Images>();
  return {0, [=, columns = columns_pass(a.columns, a.parts, s.in), type = s.out.back(),
              beside = a.beside](const Call& c) {
            pass.run(columns.in(c.in), outputs(c.out, type, beside));
          }};
}

}  // namespace

std::vector<Kernel> images() {
  return {{.op = "images",
           .name = "images_ptx",
           .supports = supports,
           .prepare = prepare,
           .space = space,
           .in_place = true,
           .may_share = +[](const Signature& s, size_t out, size_t in) {
             const auto& a = s.as<Images>();
             return same_part(a.parts, out, in) && !a.columns.of(operand_of(a.parts, in));
           }}};
}

}  // namespace ebb::ops::cuda
