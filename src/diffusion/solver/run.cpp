#include "diffusion/solver/run.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

// Of levels nearer than that the first.
std::vector<double> distinct(const std::vector<double>& levels, double least_step) {
  std::vector<double> out;
  for (const double s : levels)
    if (out.empty() || s < out.back() * (1 - least_step)) out.push_back(s);
  return out;
}

}  // namespace

void check_levels(const std::vector<double>& s, Space space) {
  require(!s.empty(), "sample: needs a noise level");
  for (size_t i = 0; i < s.size(); ++i) {
    require(std::isfinite(s[i]) && s[i] >= 0,
            "sample: noise levels must be finite and not negative (sigmas[", i, "] is ", s[i], ")");
    require(i == 0 || s[i] <= s[i - 1], "sample: noise levels must fall (sigmas[", i, "] is ", s[i],
            ", after ", i == 0 ? 0 : s[i - 1], ")");
  }
  require(space == Space::ve || s[0] <= 1,
          "sample: noise levels of a flow model end at 1 (sigmas[0] is ", s[0], ")");
}

Run::Run(Latents& latents, const SampleCall& call)
    : latents_(latents), call_(call), dialect_(find_dialect(call.dialect)) {
  check_levels(call.sigmas, call.space);
  sigmas_ = distinct(call.sigmas, dialect_.least_step);
}

std::vector<double> Run::finite_sigmas() const {
  std::vector<double> s = sigmas_;
  if (!std::isfinite(lambda(s[0])) && s[0] > 0) {
    const double next = s.size() > 1 ? s[1] : 0;
    s[0] = std::max(call_.first_sigma, (s[0] + next) / 2);  // levels still fall
  }
  return s;
}

Denoised Run::denoise_both(Latent& x, double sigma, bool with_uncond) {
  Denoised d = latents_.denoise(x, sigma, with_uncond);
  denoised_ = d.guided;
  return d;
}

Latent Run::noise(double from, double to, double clip) {
  return latents_.noise({draws_++, from, to}, clip);
}

void Run::done(int64_t i, const Latent& x) { done(i + 1, steps(), sigma(i + 1), x); }

void Run::done(int64_t i, int64_t steps, double sigma, const Latent& x) {
  if (call_.progress && !call_.progress({i, steps, sigma, x, denoised_}))
    throw Cancelled(str("sample: stopped after step ", i, " of ", steps));
}

}  // namespace ebb
