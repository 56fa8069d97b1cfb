#include "pipeline/known_latents.h"

#include <algorithm>

namespace ebb {

KnownLatents::KnownLatents(Denoiser& denoiser, Inpaint<double> how)
    : denoiser_(denoiser),
      restored_(inpainting<double>(
          [&d = denoiser](std::span<const double> x, double sigma, std::span<double> denoised,
                          std::span<double> uncond) {
            Latent in = d.put(x);
            const Denoised out = d.denoise(in, sigma, !uncond.empty());
            std::ranges::copy(d.values(out.guided), denoised.begin());
            if (!uncond.empty()) std::ranges::copy(d.values(out.uncond), uncond.begin());
          },
          std::move(how))) {}

Denoised KnownLatents::denoise(Latent& x, double sigma, bool with_uncond) {
  const State now = denoiser_.values(x);
  if (x.alone() == nullptr) {
    x = {};  // its vectors are free for it
    x = denoiser_.put(now);
  }
  State guided(now.size()), uncond(with_uncond ? now.size() : 0);
  restored_(now, sigma, guided, uncond);
  return {denoiser_.put(guided), with_uncond ? denoiser_.put(uncond) : Latent()};
}

}  // namespace ebb
