// KnownLatents: a denoiser whose known regions are restored at every evaluation.
#pragma once

#include "diffusion/denoiser.h"
#include "diffusion/start/inpaint.h"

namespace ebb {

// Needs a vector of the denoiser more than the sampler does.
class KnownLatents : public Latents {
 public:
  KnownLatents(Denoiser& denoiser, Inpaint<double> how);

  Denoised denoise(Latent& x, double sigma, bool with_uncond) override;
  Latent noise(const NoiseDraw& draw, double clip) override { return denoiser_.noise(draw, clip); }
  State values(const Latent& x) override { return denoiser_.values(x); }
  double distance(const Latent& a, const Latent& b, const Latent& before, Tolerance t) override {
    return denoiser_.distance(a, b, before, t);
  }

 private:
  Denoiser& denoiser_;
  HostDenoise<double> restored_;
};

}  // namespace ebb
