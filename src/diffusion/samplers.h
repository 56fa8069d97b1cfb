// Samplers: how noise becomes data, as free functions on states in double over a denoiser.
// src/diffusion/samplers/<s>.cpp defines `const Sampler& ebb::samplers::<s>()`.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "diffusion/path.h"

namespace ebb {

using State = std::vector<double>;  // images [N,H,W,C], row-major

// D(x, sigma): the data expected behind x = data + sigma noise.
using Denoise = std::function<State(const State& x, double sigma)>;
// Standard normal numbers of the size of a state for one step of a sampler.
using NoiseSource = std::function<State(int64_t step)>;

struct Progress {
  int64_t step = 0, steps = 0;  // `step` of `steps` are done
  double sigma = 0;             // the noise level reached
  const State& x;               // scaled by the path's s
  const State& denoised;        // the latest D
};

struct SamplerOptions {
  std::string path = "linear";
  double s_churn = 0;
  double s_tmin = 0, s_tmax = std::numeric_limits<double>::infinity();
  double s_noise = 1;
  void fields(auto&& f) {
    f("path", path, "how noise and scale run with time: linear, vp or ve");
    f("s_churn", s_churn, "noise renewed over all steps (EDM's stochastic sampler); 0: none");
    f("s_tmin", s_tmin, "smallest noise level at which noise is renewed");
    f("s_tmax", s_tmax, "largest noise level at which noise is renewed");
    f("s_noise", s_noise, "standard deviation of renewed noise");
  }
};

struct SampleCall {
  Denoise denoise;
  std::vector<double> sigmas;  // falling, the last one may be 0
  SamplerOptions options;
  NoiseSource noise;                              // needed where s_churn > 0
  std::function<double(double)> round_sigma;      // levels the network knows; none: all
  std::function<bool(const Progress&)> progress;  // after every step; false: stop with Cancelled
};

// Thrown when SampleCall::progress returns false.
class Cancelled : public Error {
 public:
  using Error::Error;
};

struct Sampler {
  std::string name;
  std::string help;
  int64_t order = 1;
  int64_t evaluations = 1;       // of the denoiser, a step
  int64_t last_evaluations = 1;  // of a step to 0
  // From a state at sigmas.front() to one at sigmas.back().
  State (*run)(State x, const SampleCall& call) = nullptr;
};

// Checks the call, scales standard normal `noise` to the first level and runs. Throws Error, also
// where the state stops being finite.
State sample(const Sampler& sampler, const State& noise, const SampleCall& call);
// How often `sample` asks the denoiser.
int64_t evaluations_of(const Sampler& sampler, const std::vector<double>& sigmas);

// ---- noise ---------------------------------------------------------------------------------

// Which pictures a state holds: noise is a function of (seed, image), whatever the batch.
struct ImageKeys {
  uint64_t seed = 0;
  std::vector<int64_t> images;
  int64_t elements = 0;  // of one image
};
State initial_noise(const ImageKeys& keys);  // standard normal
NoiseSource keyed_noise(ImageKeys keys);     // another one for every step

// ---- for samplers --------------------------------------------------------------------------

// One step of a sampler, behind the renewal of noise.
class SamplerStep {
 public:
  double from = 0, to = 0;  // times
  bool last = false;        // `to` is noise level 0
  // dx/dt at time t: (sigma'/sigma + s'/s) x - s sigma'/sigma D(x/s, sigma).
  State slope(const State& x, double t);

  SamplerStep(const SampleCall& call, const Path& path, State& denoised)
      : call_(call), path_(path), denoised_(denoised) {}

 private:
  const SampleCall& call_;
  const Path& path_;
  State& denoised_;
};

// Renews noise, calls `advance` for every step and reports progress.
State for_each_step(State x, const SampleCall& call,
                    const std::function<void(State& x, SamplerStep& step)>& advance);

void add_scaled(State& x, double factor, const State& d);  // x += factor d

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Sampler*>& all_samplers();
const Sampler& find_sampler(std::string_view name);  // throws Error, suggests the nearest

}  // namespace ebb
