// The C API of guidance: rules over the predictions of one evaluation, in the caller's buffers.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "capi/handle.h"
#include "diffusion/guidance/guide.h"
#include "diffusion/guidance/sag_blur.h"

struct ebb_guidance {
  ebb::Guide guide;
  ebb::GuidanceCall call;
};

namespace ebb::capi {
namespace {

GuidedShape shape_of(const ebb_sampler& s, const Batch& batch) {
  GuidedShape out{.batch = static_cast<int64_t>(batch.images),
                  .width = static_cast<int64_t>(batch.elements)};
  const std::vector<int64_t>& shape = s.noise.shape;
  if (shape.empty()) return out;
  out = {out.batch, shape[0], shape[1], shape[2], s.noise.channels_first};
  require(out.sample() == static_cast<int64_t>(batch.elements), "guidance: an image has ",
          batch.elements, " numbers, its shape ", out.sample());
  return out;
}

GuidanceCall call_of(const ebb_sampler& s, const Batch& batch) {
  const auto known = resolved(s);
  return {.shape = shape_of(s, batch),
          .sigmas = known->call.sigmas,
          .space = known->call.space,
          .raw = raw_of(known->network.prediction, known->network.sigma_data)};
}

StepContext step_context_at(const ebb_guidance& g, double sigma) {
  require_level("guidance", sigma, g.call.space);
  return step_context_of(g.call, sigma);
}

void apply(ebb_guidance& g, double sigma, const float* x, const float* const* predictions,
           float* denoised) {
  const StepContext m = step_context_at(g, sigma);
  const std::vector<Branch> branches = g.guide.branches(m);
  for (size_t k = 0; k < branches.size(); ++k)
    require(predictions[k] != nullptr, "guidance: needs the prediction '", name_of(branches[k]),
            "' (number ", k, ") at sigma ", sigma);
  const auto n = static_cast<size_t>(g.call.shape.sample());
  std::vector<double> state(n), result(n);
  GuidedSample s{g.call.shape, 0, result, state, std::vector<std::vector<double>>(branch_count)};
  for (; s.index < g.call.shape.batch; ++s.index) {
    const size_t first = static_cast<size_t>(s.index) * n;
    std::copy_n(x + first, n, state.begin());
    for (size_t k = 0; k < branches.size(); ++k)
      s.predictions[static_cast<size_t>(branches[k])].assign(predictions[k] + first,
                                                             predictions[k] + first + n);
    g.guide.apply(s, m);
    std::transform(result.begin(), result.end(), denoised + first,
                   [](double v) { return static_cast<float>(v); });
  }
}

void sag_blur_all(const GuidedShape& shape, const SagBlur& how, const float* uncond,
                  const float* attention, float* out) {
  const int64_t n = shape.sample(), pixels = shape.pixels();
  for (int64_t i = 0; i < shape.batch; ++i) {
    const std::vector<double> from(uncond + i * n, uncond + (i + 1) * n);
    const std::vector<double> seen(attention + i * pixels, attention + (i + 1) * pixels);
    std::vector<double> soft(from.size());
    sag_blur(from, seen, shape, how, soft);
    std::transform(soft.begin(), soft.end(), out + i * n,
                   [](double v) { return static_cast<float>(v); });
  }
}

}  // namespace
}  // namespace ebb::capi

using ebb::capi::guarded;
using ebb::capi::require_given;

ebb_status ebb_guidance_create(const char* rules, const ebb_sampler* sampler, size_t images,
                               size_t elements, ebb_guidance** out) {
  return guarded([&] {
    require_given(out, "out");
    *out = nullptr;
    require_given(rules, "rules");
    require_given(sampler, "sampler");
    *out = new ebb_guidance{ebb::Guide(ebb::parse_rules(rules)),
                            ebb::capi::call_of(*sampler, {images, elements, "guidance"})};
  });
}

void ebb_guidance_destroy(ebb_guidance* guidance) {
  guarded([&] { delete guidance; });
}

ebb_status ebb_guidance_branches(const ebb_guidance* guidance, double sigma, const char** names,
                                 size_t room, size_t* count) {
  return guarded([&] {
    require_given(guidance, "guidance");
    require_given(count, "count");
    if (room > 0) require_given(names, "names");
    const auto branches = guidance->guide.branches(ebb::capi::step_context_at(*guidance, sigma));
    for (size_t i = 0; i < std::min(room, branches.size()); ++i)
      names[i] = ebb::name_of(branches[i]).data();  // of a literal
    *count = branches.size();
  });
}

ebb_status ebb_guidance_apply(ebb_guidance* guidance, double sigma, const float* x,
                              const float* const* predictions, float* denoised) {
  return guarded([&] {
    require_given(guidance, "guidance");
    require_given(x, "x");
    require_given(predictions, "predictions");
    require_given(denoised, "denoised");
    ebb::capi::apply(*guidance, sigma, x, predictions, denoised);
  });
}

ebb_status ebb_guidance_sag_blur(const ebb_guidance* guidance, const ebb_sag* how,
                                 const float* uncond, const float* attention, float* out) {
  return guarded([&] {
    require_given(guidance, "guidance");
    require_given(uncond, "uncond");
    require_given(attention, "attention");
    require_given(out, "out");
    ebb::SagBlur blur;
    if (how) blur = {how->size, how->sigma, how->threshold};
    ebb::require(std::isfinite(blur.sigma) && blur.sigma > 0, "sag_blur: sigma must be positive (",
                 blur.sigma, ")");
    ebb::capi::sag_blur_all(guidance->call.shape, blur, uncond, attention, out);
  });
}
