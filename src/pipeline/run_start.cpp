#include "pipeline/run_start.h"

#include <algorithm>

#include "diffusion/solver/defaults.h"
#include "diffusion/solver/sampler_names.h"
#include "pipeline/picture_dialect.h"

namespace ebb {
namespace {

// Images [1,...] or one for each of the batch (fewer at its end), as a state.
State state_of(const Tensor& images, int64_t batch) {
  State out;
  if (!images.defined()) return out;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t row = std::min(i, images.shape()[0] - 1);
    const auto v = images.rows(row, row + 1).span<float>();
    out.insert(out.end(), v.begin(), v.end());
  }
  return out;
}

// `mask` [1,h,w,1] for every number of a batch.
State mask_of(const Tensor& mask, const ResolvedRequest& r) {
  State out;
  for (int64_t i = 0; i < r.batch; ++i)
    for (const float v : mask.span<float>())
      out.insert(out.end(), static_cast<size_t>(r.sample[-1]), v);
  return out;
}

// The numbers of each image by its own key, whatever the others are.
Noise noise_by_image(const ResolvedRequest& r, const NoiseCall& all) {
  std::vector<Noise> each;
  for (const ImageKey& k : r.keys) {
    NoiseCall one = all;
    one.seed = k.seed, one.images = {k.image};
    each.push_back(open_default_noise(r.noise, one, r.noise_options));
  }
  const auto parted = [size = static_cast<size_t>(all.elements())](const auto& fills) {
    return [=](std::span<double> out, const auto&... draw) {
      for (size_t i = 0; i < fills.size(); ++i) fills[i](out.subspan(i * size, size), draw...);
    };
  };
  std::vector<std::function<void(std::span<double>)>> starts, plain;
  std::vector<NoiseFill> steps;
  for (Noise& n : each) {
    starts.push_back(std::move(n.start)), steps.push_back(std::move(n.step));
    if (n.plain) plain.push_back(std::move(n.plain));
  }
  Noise out{.start = parted(starts), .step = parted(steps)};
  if (!plain.empty()) out.plain = parted(plain);
  return out;
}

// As a run of the seed that follows starts.
State other_noise(const ResolvedRequest& r, NoiseCall keys) {
  ++keys.seed;
  State out(static_cast<size_t>(keys.batch() * keys.elements()));
  open_default_noise(r.noise, keys, r.noise_options).start(out);
  return out;
}

}  // namespace

int64_t counted_steps(const ResolvedRequest& r) {
  const bool web_ui =
      picture_dialect(r.options.dialect).control_shares == ControlShares::begun_steps;
  return std::ssize(r.call.sigmas) - 1 + (r.start.noised_at ? 2 : 0) -
         (web_ui && means_sampler("uni_pc", r.options.sampler) ? 1 : 0);
}

NoiseCall noise_keys(const ResolvedRequest& r, int64_t first) {
  NoiseCall keys{.seed = r.options.seed,
                 .images = {},
                 .shape = r.sample.sizes(),
                 .sigmas = r.noise_levels.empty() ? r.call.sigmas : r.noise_levels};
  for (int64_t i = 0; i < r.batch; ++i) {
    const int64_t at = std::min(first + i, r.count() - 1);
    keys.images.push_back(r.keys.empty() ? r.first_image + at
                                         : r.keys[static_cast<size_t>(at)].image);
  }
  return keys;
}

bool noise_is_by_image(ResolvedRequest r) {
  // Of one picture of a batch.
  const auto numbers = [&](int64_t first, int64_t batch, std::ptrdiff_t row) {
    r.batch = batch;
    const NoiseCall keys = noise_keys(r, first);
    const Noise noise = open_default_noise(r.noise, keys, r.noise_options);
    const auto of = static_cast<std::ptrdiff_t>(keys.elements());
    State out, all(static_cast<size_t>(batch * of));
    const auto from = all.begin() + row * of;
    const auto take = [&] { out.insert(out.end(), from, from + of); };
    noise.start(all), take();
    const std::vector<double>& levels = r.call.sigmas;
    if (levels.size() > 1 && levels[1] > 0)
      noise.step(all, {.index = 0, .from = levels[0], .to = levels[1]}), take();
    return out;
  };
  return numbers(0, 2, 0) == numbers(0, 1, 0) && numbers(0, 2, 1) == numbers(1, 1, 0);
}

Start start_of(const ResolvedRequest& r, const RunInputs& in, const NoiseCall& keys) {
  const Noise noise =
      r.keys.empty() ? open_default_noise(r.noise, keys, r.noise_options) : noise_by_image(r, keys);
  Start out{state_of(in.data, r.batch), {}, noise.step};
  // The first numbers are those of the posterior; all others move up.
  const int64_t before = in.first_draw + (in.deviation.defined() ? 1 : 0);
  if (before > 0)
    out.step = [step = noise.step, before](std::span<double> z, NoiseDraw draw) {
      draw.index += before;
      step(z, draw);
    };
  if (!in.noised) return out;
  out.noise.resize(static_cast<size_t>(keys.batch() * keys.elements()));
  noise.start(out.noise);
  if (in.deviation.defined()) {
    const State deviation = state_of(in.deviation, r.batch);
    for (size_t i = 0; i < out.data.size(); ++i) out.data[i] += deviation[i] * out.noise[i];
    noise.step(out.noise, {.index = 0});
  }
  if (in.noise_instead.defined()) {
    const State mask = mask_of(in.noise_instead, r);
    State instead = out.noise;
    if (noise.plain) noise.plain(instead);
    for (size_t i = 0; i < mask.size(); ++i)
      out.data[i] = (1 - mask[i]) * out.data[i] + mask[i] * instead[i];
  }
  return out;
}

Inpaint<double> inpaint_of(const ResolvedRequest& r, const KnownRegion& known, const Start& start,
                           const NoiseCall& keys) {
  State mask = mask_of(known.mask, r);
  if (known.where.rounds_mask) round_mask<double>(mask);
  return {.data = start.data,
          .noise = known.where.other_noise ? other_noise(r, keys) : start.noise,
          .mask = std::move(mask),
          .space = r.call.space,
          .input = known.where.input,
          .output = known.where.output,
          .clean_input = known.where.clean_input};
}

State first_state(const ResolvedRequest& r, const RunInputs& inputs, const NoiseCall& keys,
                  const Start& start) {
  if (!inputs.noised) return start.data;
  State x(static_cast<size_t>(keys.batch() * keys.elements()));
  start_state<double>(start.data, start.noise, r.call.sigmas[0], r.start, x);
  return x;
}

}  // namespace ebb
