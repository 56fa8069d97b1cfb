// Run: one trajectory from noise to data as a sampler sees it: levels, the denoiser, noise draws.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "diffusion/solver/dialect.h"
#include "diffusion/solver/latents.h"
#include "diffusion/solver/space.h"

namespace ebb {

struct Progress {
  int64_t step = 0, steps = 0;  // `step` of `steps` are done
  double sigma = 0;             // the noise level reached
  const Latent& x;
  const Latent& denoised;  // the latest D
};

struct SampleCall {
  // Decreasing, the last one may be 0. Levels equal to within a millionth count once.
  std::vector<double> sigmas;
  OptionTexts options = {};
  Space space = Space::ve;
  std::string dialect = "ebb";
  // Replaces a first level without finite lambda (flow's 1) in samplers that use lambda.
  double first_sigma = 1 - 1e-4;
  std::vector<double> table = {};  // sigma of every timestep, rising, of discrete-time networks
  std::function<double(double)> round_sigma = {};  // rounds to the network's levels; none: all are
  std::function<bool(const Progress&)> progress = {};  // after every step; false: Cancelled
};

// Thrown when SampleCall::progress returns false.
class Cancelled : public Error {
 public:
  using Error::Error;
};

// Throws Error unless there are levels, all finite and not negative, not increasing, and on flow
// models at most 1.
void check_levels(const std::vector<double>& sigmas, Space space);

class Run {
 public:
  Run(Latents& latents, const SampleCall& call);  // throws Error for levels that do not decrease

  const std::vector<double>& sigmas() const { return sigmas_; }
  double sigma(int64_t i) const { return sigmas_[static_cast<size_t>(i)]; }
  int64_t steps() const { return static_cast<int64_t>(sigmas_.size()) - 1; }
  const std::vector<double>& table() const { return call_.table; }
  const Dialect& dialect() const { return dialect_; }

  Space space() const { return call_.space; }
  double alpha(double sigma) const { return alpha_of(call_.space, sigma); }
  double lambda(double sigma) const { return lambda_of(call_.space, sigma); }
  double sigma_of(double lambda) const { return ebb::sigma_of(call_.space, lambda); }
  // The levels, with a first one whose lambda is finite.
  std::vector<double> finite_sigmas() const;
  // The nearest level of the network.
  double round(double sigma) const { return call_.round_sigma ? call_.round_sigma(sigma) : sigma; }

  // D(x, sigma). `x` becomes one vector.
  Latent denoise(Latent& x, double sigma) { return denoise_both(x, sigma, false).guided; }
  Denoised denoise_both(Latent& x, double sigma, bool with_uncond = true);
  // The next standard normal noise, for the step from one level to another.
  Latent noise(double from, double to, double clip = 0);
  double distance(const Latent& a, const Latent& b, const Latent& before, Latents::Tolerance t) {
    return latents_.distance(a, b, before, t);
  }
  // Step `i` (from 0) ended at `x`. Throws Cancelled.
  void done(int64_t i, const Latent& x);
  // For samplers that choose their own steps: `i` of `steps` are done, `x` is at `sigma`.
  void done(int64_t i, int64_t steps, double sigma, const Latent& x);

 private:
  Latents& latents_;
  const SampleCall& call_;
  const Dialect& dialect_;
  std::vector<double> sigmas_;
  int64_t draws_ = 0;
  Latent denoised_;
};

}  // namespace ebb
