// HostLatents: vectors in host memory, and a denoiser that is a function on them. T: float or
// double.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "diffusion/solver/latents.h"

namespace ebb {

// Writes D(x, sigma) to `denoised`, and the unconditional prediction to `uncond` unless that is
// empty. All have the latents' size.
template <class T>
using HostDenoise = std::function<void(std::span<const T> x, double sigma, std::span<T> denoised,
                                       std::span<T> uncond)>;
template <class T>
class HostLatents : public Latents {
 public:
  // `noise` may be empty if nothing is drawn.
  HostLatents(size_t size, HostDenoise<T> denoise, NoiseFill noise);

  Latent put(std::span<const T> values);
  void read(const Latent& x, std::span<T> out) const;

  Denoised denoise(Latent& x, double sigma, bool with_uncond) override;
  Latent noise(const NoiseDraw& draw, double clip) override;
  double distance(const Latent& a, const Latent& b, const Latent& before, Tolerance t) override;
  std::vector<double> values(const Latent& x) override;
  void check_end(const Latent& x) override;

 private:
  struct Vector;
  struct Pool;
  std::shared_ptr<Vector> fresh();

  size_t size_;
  HostDenoise<T> denoise_;
  NoiseFill noise_;
  std::shared_ptr<Pool> pool_;  // of reusable buffers
};

// ---- unwritten values ------------------------------------------------------------------------

// Fills a callback's output with a NaN pattern of our own, which shows what it did not write.
template <class T>
void mark_unwritten(std::span<T> out);
// The index of the first value that is still marked; none: all were written.
template <class T>
std::optional<size_t> first_unwritten(std::span<const T> out);

extern template void mark_unwritten(std::span<float>);
extern template void mark_unwritten(std::span<double>);
extern template std::optional<size_t> first_unwritten(std::span<const float>);
extern template std::optional<size_t> first_unwritten(std::span<const double>);
extern template class HostLatents<float>;
extern template class HostLatents<double>;

}  // namespace ebb
