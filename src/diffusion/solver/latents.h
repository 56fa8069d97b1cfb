// Latents: the storage of a sampler's vectors and its network. This is the only interface that
// samplers use, so the same code runs in host memory, on a device and as a cost counter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "diffusion/noise/noise.h"
#include "diffusion/solver/latent.h"

namespace ebb {

struct Denoised {
  Latent guided;
  Latent uncond;  // unconditional; 0 unless requested
};

class Latents {
 public:
  virtual ~Latents() = default;

  // D(x, sigma): the expected data given x. `x` becomes one stored vector: it was evaluated for
  // this.
  virtual Denoised denoise(Latent& x, double sigma, bool with_uncond) = 0;
  // A vector of standard normal noise. Values beyond `clip` standard deviations of the vector are
  // clipped to it; 0: none are.
  virtual Latent noise(const NoiseDraw& draw, double clip) = 0;
  // Root of the mean square of (a - b) / max(atol, rtol max(|a|, |before|)), over the whole batch.
  struct Tolerance {
    double atol, rtol;
  };
  virtual double distance(const Latent& a, const Latent& b, const Latent& before, Tolerance) = 0;
  // The values. Throws Error if vectors have none (a cost counter).
  virtual std::vector<double> values(const Latent& x) = 0;
  // Throws Error if x, the result of a run, is not finite. Does nothing if that is checked later.
  virtual void check_end(const Latent&) {}
};

// ---- for storage classes ---------------------------------------------------------------------

// Clips to `deviations` standard deviations (of a sample) of all values.
void clip_to_deviations(std::span<double> z, double deviations);
// Latents::distance of vectors in host memory.
double scaled_distance(std::span<const double> a, std::span<const double> b,
                       std::span<const double> before, Latents::Tolerance tolerance);

}  // namespace ebb
