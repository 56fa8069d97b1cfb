#include "diffusion/start/inpaint.h"

#include <algorithm>

#include "base/error.h"
#include "diffusion/start/start_dialect.h"
#include "diffusion/start/strength.h"

namespace ebb {
namespace {

template <class T>
struct Inpainting {
  HostDenoise<T> denoise;
  Inpaint<T> how;
  std::vector<T> input, known, mask;

  // The mask of this level.
  void find_mask(double sigma) {
    mask = how.mask;
    if (!how.threshold) return;
    const double least = how.threshold(sigma);
    for (T& m : mask) m = static_cast<double>(m) >= least ? T{1} : T{0};
  }

  // A prediction of the restored input as one of x, with the same noise.
  void move(std::span<const T> x, std::span<T> prediction) const {
    for (size_t i = 0; i < prediction.size(); ++i) prediction[i] += x[i] - input[i];
  }

  void operator()(std::span<const T> x, double sigma, std::span<T> denoised, std::span<T> uncond) {
    require(x.size() == how.data.size(), "inpaint: the state has ", x.size(),
            " values, the known data ", how.data.size());
    find_mask(sigma);
    input.assign(x.begin(), x.end());
    if (how.input) {
      known.resize(x.size());
      if (how.clean_input)
        std::ranges::transform(how.data, known.begin(), [scale = vp_norm(sigma)](T v) {
          return static_cast<T>(scale * static_cast<double>(v));
        });
      else
        start_state<T>(how.data, how.noise, sigma, {.space = how.space}, known);
      blend<T>(known, mask, input);
    }
    denoise(input, sigma, denoised, uncond);
    if (how.clean_input) move(x, denoised), move(x, uncond);
    if (!how.output) return;
    blend<T>(how.data, mask, denoised);
    blend<T>(how.data, mask, uncond);
  }
};

}  // namespace

KnownRegions known_regions(std::string_view dialect, std::string_view sampler) {
  return start_dialect(dialect).known(sampler);
}

template <class T>
HostDenoise<T> inpainting(HostDenoise<T> denoise, Inpaint<T> how) {
  require(how.mask.size() == how.data.size(), "inpaint: the mask must have a value for each of ",
          how.data.size(), " (got ", how.mask.size(), ")");
  require(how.noise.empty() || how.noise.size() == how.data.size(), "inpaint: the noise must have ",
          how.data.size(), " values (got ", how.noise.size(), ")");
  const auto all = std::make_shared<Inpainting<T>>();
  all->denoise = std::move(denoise);
  all->how = std::move(how);
  return [all](std::span<const T> x, double sigma, std::span<T> denoised, std::span<T> uncond) {
    (*all)(x, sigma, denoised, uncond);
  };
}

template <class T>
void blend(std::span<const T> data, std::span<const T> mask, std::span<T> out) {
  for (size_t i = 0; i < out.size(); ++i)
    // Exact at both ends: known parts come back bit for bit.
    out[i] = mask[i] == 1   ? out[i]
             : mask[i] == 0 ? data[i]
                            : mask[i] * out[i] + (1 - mask[i]) * data[i];
}

template <class T>
void round_mask(std::span<T> mask) {
  for (T& m : mask) m = m < T{0.5} ? T{0} : T{1};
}

double differential_threshold(double timestep, double first, double last) {
  return first == last ? 1 : (timestep - last) / (first - last);
}

template HostDenoise<float> inpainting(HostDenoise<float>, Inpaint<float>);
template HostDenoise<double> inpainting(HostDenoise<double>, Inpaint<double>);
template void blend(std::span<const float>, std::span<const float>, std::span<float>);
template void blend(std::span<const double>, std::span<const double>, std::span<double>);
template void round_mask(std::span<float>);
template void round_mask(std::span<double>);

}  // namespace ebb
