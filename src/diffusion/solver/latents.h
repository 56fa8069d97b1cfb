// Latents: where a sampler's vectors live and its network runs. Samplers ask for no more than this,
// so the same ones work in memory, on a device and as a count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diffusion/noise/noise.h"
#include "diffusion/solver/latent.h"

namespace ebb {

struct Denoised {
  Latent guided;
  Latent uncond;  // without the condition; 0 unless it was asked for
};

class Latents {
 public:
  virtual ~Latents() = default;

  // D(x, sigma): the data expected behind x. `x` becomes one vector: it was added up for this.
  virtual Denoised denoise(Latent& x, double sigma, bool with_uncond) = 0;
  // Standard normal numbers, a vector of them. Those beyond `clip` standard deviations of the
  // vector become them; 0: none are.
  virtual Latent noise(const NoiseDraw& draw, double clip) = 0;
  // Root of the mean square of (a - b) / max(atol, rtol max(|a|, |before|)), over the whole batch.
  struct Tolerance {
    double atol, rtol;
  };
  virtual double distance(const Latent& a, const Latent& b, const Latent& before, Tolerance) = 0;
  // The numbers. Throws Error where vectors have none (a count).
  virtual std::vector<double> values(const Latent& x) = 0;
  // Throws Error if x, the end of a run, is not finite. Does nothing where that is seen later.
  virtual void check_end(const Latent&) {}
};

// ---- for those who keep vectors ------------------------------------------------------------

// Numbers beyond `deviations` standard deviations (of a sample) of all of them become them.
void clip_to_deviations(std::span<double> z, double deviations);
// Latents::distance of vectors in memory.
double scaled_distance(std::span<const double> a, std::span<const double> b,
                       std::span<const double> before, Latents::Tolerance tolerance);

}  // namespace ebb
