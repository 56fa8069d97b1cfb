// The C API of starts: noise, an image and noise, inpainting, the second of two networks.
#include <algorithm>
#include <cmath>

#include "base/names.h"
#include "capi/handle.h"
#include "diffusion/start/refiner.h"
#include "diffusion/start/strength.h"

namespace ebb::capi {
namespace {

void start(const ebb_sampler& s, const float* latent, const Batch& batch, float* x) {
  const auto known = resolved(s);
  require(!known->call.sigmas.empty(), "sampler: needs noise levels");
  std::vector<double> z(batch.size()), data;
  noise_of(s, batch).start(z);
  if (latent) data.assign(latent, latent + batch.size());
  const double sigma = known->call.sigmas[0];
  const bool whole = starts_from_noise({.dialect = s.choice.dialect,
                                        .sigma = sigma,
                                        .sigma_max = known->network.levels.sigma_max,
                                        .sampler = s.choice.sampler,
                                        .has_data = latent != nullptr,
                                        .leading = known->leading});
  start_state<double>(data, z, sigma,
                      {.space = known->call.space,
                       .full_variance = whole,
                       .noised_at = data.empty() ? std::nullopt : known->noised_at},
                      z);
  std::transform(z.begin(), z.end(), x, [](double v) { return static_cast<float>(v); });
}

// ---- inpainting ----------------------------------------------------------------------------

InpaintChoice copied(const ebb_inpaint& i) {
  require_given(i.data, "the data of inpainting");
  require_given(i.mask, "the mask of inpainting");
  InpaintChoice out{.data = {i.data, i.data + i.count},
                    .mask = {i.mask, i.mask + i.count},
                    .parts = {i.input != 0, i.output != 0, i.end != 0},
                    .differential = i.differential != 0};
  out.by_dialect = !out.parts.input && !out.parts.output && !out.parts.end;
  if (i.noise) out.noise.assign(i.noise, i.noise + i.count);
  for (const float m : out.mask)
    require(m >= 0 && m <= 1, "inpaint: the mask must lie in [0, 1] (", m, ")");
  return out;
}

KnownRegions regions_of(const ebb_sampler& s) {
  if (s.inpaint->by_dialect) return known_regions(s.choice.dialect, s.choice.sampler);
  return s.inpaint->parts;
}

std::vector<float> mask_of(const ebb_sampler& s, const KnownRegions& parts) {
  std::vector<float> mask = s.inpaint->mask;
  if (parts.rounds_mask && !s.inpaint->differential) round_mask<float>(mask);
  return mask;
}

// How much of the run's time is left at a level.
std::function<double(double)> time_left(std::shared_ptr<const ResolvedRun> known) {
  const std::vector<double>& sigmas = known->call.sigmas;
  require(!sigmas.empty(), "sampler: needs noise levels");
  const double first = sigmas.front(),
               last = std::max(sigmas.back(), known->network.levels.sigma_min);
  return [=](double sigma) {
    const auto time = [&](double s) {
      const Discretisation& levels = known->network.levels;
      return levels.c_noise == CNoise::table ? levels.c_noise_of(s, known->timesteps_apart)
                                             : levels.time_of(s);
    };
    return differential_threshold(time(sigma), time(first), time(last));
  };
}

// ---- two networks --------------------------------------------------------------------------

int64_t below_timestep(const ResolvedRun& known, double share) {
  const Discretisation& levels = known.network.levels;
  require(levels.c_noise == CNoise::table || levels.space == Space::flow, "refiner: levels ",
          levels.name, " have no timesteps");
  const auto count = levels.c_noise == CNoise::table ? static_cast<int64_t>(levels.sigmas.size())
                                                     : std::llround(levels.scale);
  std::vector<double> timesteps;
  for (size_t i = 0; i + 1 < known.call.sigmas.size(); ++i)
    timesteps.push_back(levels.c_noise == CNoise::table ? levels.c_noise_of(known.call.sigmas[i], 1)
                                                        : levels.scale * known.call.sigmas[i]);
  return switch_below(timesteps, timestep_cutoff(share, count));
}

int64_t refiner_step(const ebb_sampler& s, const std::string& rule, double share) {
  const auto known = resolved(s);
  const std::vector<double>& sigmas = known->call.sigmas;
  const std::vector<std::string> rules = {"steps", "level", "timestep"};
  check_known("refiner: unknown rule", rule, rules);
  require(!sigmas.empty(), "sampler: needs noise levels");
  if (rule == "steps") return switch_by_steps(static_cast<int64_t>(sigmas.size()) - 1, share);
  if (rule == "level") return switch_by_level(sigmas, known->network.levels.sigmas, share);
  return below_timestep(*known, share);
}

}  // namespace

HostDenoise<float> inpainted(const ebb_sampler& s, const Batch& batch, HostDenoise<float> denoise) {
  if (!s.inpaint) return denoise;
  const InpaintChoice& i = *s.inpaint;
  require(i.data.size() == batch.size(), "inpaint: the data have ", i.data.size(),
          " values, the state ", batch.size());
  const auto known = resolved(s);
  const KnownRegions parts = regions_of(s);
  Inpaint<float> how{.data = i.data,
                     .noise = i.noise,
                     .mask = mask_of(s, parts),
                     .space = known->call.space,
                     .input = parts.input,
                     .output = parts.output,
                     .clean_input = parts.clean_input};
  if (i.differential) how.threshold = time_left(known);
  if (how.noise.empty() && parts.input && !parts.clean_input) {
    std::vector<double> z(batch.size());
    noise_of(s, batch).start(z);
    how.noise.assign(z.begin(), z.end());
  }
  return inpainting(std::move(denoise), std::move(how));
}

void put_known_back(const ebb_sampler& s, std::span<float> x) {
  if (!s.inpaint) return;
  const KnownRegions parts = regions_of(s);
  if (!parts.end) return;
  std::vector<float> mask = mask_of(s, parts);
  // What was made anew at any level stays.
  if (s.inpaint->differential)
    std::transform(mask.begin(), mask.end(), mask.begin(),
                   [](float m) { return m > 0 ? 1.F : 0.F; });
  blend<float>(s.inpaint->data, mask, x);
}

}  // namespace ebb::capi

using ebb::capi::changed;
using ebb::capi::guarded;
using ebb::capi::require_given;

ebb_status ebb_sampler_start(const ebb_sampler* sampler, const float* latent, size_t images,
                             size_t elements, float* x) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(x, "x");
    ebb::capi::start(*sampler, latent, {images, elements, "sampler"}, x);
  });
}

ebb_status ebb_sampler_finish(const ebb_sampler* sampler, double sigma, size_t count, float* x) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(x, "x");
    const ebb::Space space = ebb::capi::resolved(*sampler)->call.space;
    ebb::capi::require_level("sampler", sigma, space);
    ebb::finish_state<float>({x, count}, sigma, space);
  });
}

ebb_status ebb_sampler_set_inpaint(ebb_sampler* sampler, const ebb_inpaint* inpaint) {
  return changed(sampler, [&](ebb_sampler& s) {
    s.inpaint = nullptr;
    if (!inpaint) return;
    s.inpaint = std::make_shared<const ebb::capi::InpaintChoice>(ebb::capi::copied(*inpaint));
  });
}

ebb_status ebb_sampler_refiner_step(const ebb_sampler* sampler, const char* rule, double share,
                                    int64_t* step) {
  return guarded([&] {
    require_given(sampler, "sampler");
    require_given(rule, "rule");
    require_given(step, "step");
    *step = ebb::capi::refiner_step(*sampler, rule, share);
  });
}
