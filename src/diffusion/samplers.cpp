#include "diffusion/samplers.h"

#include <algorithm>
#include <cmath>

#include "base/names.h"
#include "base/random.h"

#define X(name)               \
  namespace ebb::samplers {   \
  const ebb::Sampler& name(); \
  }
#include "ebb/gen/samplers.inc"
#undef X

namespace ebb {
namespace {

void check(const SampleCall& c) {
  const SamplerOptions& o = c.options;
  require(c.sigmas.size() >= 2, "sample: needs two noise levels or more (", c.sigmas.size(), ")");
  for (size_t i = 0; i + 1 < c.sigmas.size(); ++i)
    require(std::isfinite(c.sigmas[i]) && c.sigmas[i] > c.sigmas[i + 1] && c.sigmas[i + 1] >= 0,
            "sample: noise levels must fall and not be negative (", c.sigmas[i], ", then ",
            c.sigmas[i + 1], ")");
  require(o.s_churn >= 0 && std::isfinite(o.s_churn), "sample: s_churn must not be negative (",
          o.s_churn, ")");
  require(o.s_tmin <= o.s_tmax, "sample: s_tmin (", o.s_tmin, ") must not be above s_tmax (",
          o.s_tmax, ")");
  require(o.s_noise >= 0 && std::isfinite(o.s_noise), "sample: s_noise must not be negative (",
          o.s_noise, ")");
  require(o.s_churn == 0 || c.noise, "sample: s_churn (", o.s_churn, ") needs a source of noise");
}

State normals(const ImageKeys& keys, uint32_t step, std::string_view use) {
  State out;
  std::vector<float> image(static_cast<size_t>(keys.elements));
  for (const int64_t i : keys.images) {
    fill_normal({keys.seed, static_cast<uint64_t>(i), step, random_use(use)}, 0, image);
    out.insert(out.end(), image.begin(), image.end());
  }
  return out;
}

bool finite(const State& x) {
  return std::all_of(x.begin(), x.end(), [](double v) { return std::isfinite(v); });
}

// Raises the noise of x (Karras et al. 2022, algorithm 2, lines 4 to 6); returns the new time.
double churn(State& x, double t, int64_t step, const SampleCall& c) {
  const SamplerOptions& o = c.options;
  const Path& path = find_path(o.path);
  const double sigma = path.sigma(t);
  const auto steps = static_cast<double>(c.sigmas.size() - 1);
  const double gamma = std::min(o.s_churn / steps, std::sqrt(2.0) - 1);
  if (gamma == 0 || sigma < o.s_tmin || sigma > o.s_tmax) return t;
  const double asked = sigma * (1 + gamma);
  const double raised = path.time(c.round_sigma ? c.round_sigma(asked) : asked);
  const double after = path.sigma(raised);
  const State z = c.noise(step);
  require(z.size() == x.size(), "sample: the noise has ", z.size(), " numbers for a state of ",
          x.size());
  const double amount = std::sqrt(std::max(after * after - sigma * sigma, 0.0));
  const double scale = path.scale(raised) / path.scale(t);
  for (double& v : x) v *= scale;
  add_scaled(x, amount * path.scale(raised) * o.s_noise, z);
  return raised;
}

}  // namespace

State sample(const Sampler& sampler, const State& noise, const SampleCall& call) {
  check(call);
  const Path& path = find_path(call.options.path);
  State x = noise;
  const double factor = call.sigmas[0] * path.scale(path.time(call.sigmas[0]));
  for (double& v : x) v *= factor;
  return sampler.run(std::move(x), call);
}

int64_t evaluations_of(const Sampler& sampler, const std::vector<double>& sigmas) {
  if (sigmas.size() < 2) return 0;
  const auto steps = static_cast<int64_t>(sigmas.size()) - 1;
  const int64_t last = sigmas.back() == 0 ? sampler.last_evaluations : sampler.evaluations;
  return (steps - 1) * sampler.evaluations + last;
}

// ---- noise ---------------------------------------------------------------------------------

State initial_noise(const ImageKeys& keys) { return normals(keys, 0, "sample.start"); }

NoiseSource keyed_noise(ImageKeys keys) {
  return [keys = std::move(keys)](int64_t step) {
    return normals(keys, static_cast<uint32_t>(step), "sample.churn");
  };
}

// ---- for samplers --------------------------------------------------------------------------

State SamplerStep::slope(const State& x, double t) {
  const double sigma = path_.sigma(t), scale = path_.scale(t);
  State d = x;
  for (double& v : d) v /= scale;
  denoised_ = call_.denoise(d, sigma);
  require(denoised_.size() == x.size(), "sample: the denoiser answers with ", denoised_.size(),
          " numbers for a state of ", x.size());
  const double rate = path_.sigma_slope(t) / sigma;
  const double of_x = rate + path_.scale_slope(t) / scale, of_denoised = scale * rate;
  for (size_t i = 0; i < d.size(); ++i) d[i] = of_x * x[i] - of_denoised * denoised_[i];
  return d;
}

State for_each_step(State x, const SampleCall& call,
                    const std::function<void(State& x, SamplerStep& step)>& advance) {
  const Path& path = find_path(call.options.path);
  const auto steps = static_cast<int64_t>(call.sigmas.size()) - 1;
  State denoised = x;
  for (int64_t i = 0; i < steps; ++i) {
    const double sigma = call.sigmas[static_cast<size_t>(i) + 1];
    SamplerStep step(call, path, denoised);
    step.from = churn(x, path.time(call.sigmas[static_cast<size_t>(i)]), i, call);
    step.to = path.time(sigma);
    step.last = sigma == 0;
    advance(x, step);
    require(finite(x), "sample: the state is not finite after step ", i + 1, " of ", steps,
            " (noise level ", sigma, ")");
    if (call.progress && !call.progress({i + 1, steps, sigma, x, denoised}))
      throw Cancelled(str("sample: stopped after step ", i + 1, " of ", steps));
  }
  return x;
}

void add_scaled(State& x, double factor, const State& d) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += factor * d[i];
}

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Sampler*>& all_samplers() {
  static const std::vector<const Sampler*> table = {
#define X(name) &samplers::name(),
#include "ebb/gen/samplers.inc"
#undef X
  };
  return table;
}

const Sampler& find_sampler(std::string_view name) {
  std::vector<std::string> known;
  for (const Sampler* s : all_samplers()) {
    if (s->name == name) return *s;
    known.push_back(s->name);
  }
  fail("sampler: unknown name '", name, "'", suggestion(name, known));
}

}  // namespace ebb
