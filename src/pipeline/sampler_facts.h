// Facts about samplers, measured: cost by counting, trajectories on data whose denoiser is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/seed.h"
#include "diffusion/solver/sampler.h"

namespace ebb {

// An isotropic Gaussian mixture in `dims` dimensions: the optimal denoiser has a closed form.
struct Blobs {
  int64_t dims = 1;
  double spread = 0.2;
  std::vector<double> weights;
  std::vector<double> means;  // [blobs, dims]

  // D(x, sigma) for points [N, dims], x = data + sigma noise.
  void denoise(std::span<const double> x, double sigma, std::span<double> out) const;
  // On flow models: x = (1 - sigma) data + sigma noise.
  void denoise_flow(std::span<const double> x, double sigma, std::span<double> out) const;
};
Blobs line_of_blobs();   // two, in one dimension
Blobs plane_of_blobs();  // three, in two

// A call on the levels of Stable Diffusion, spaced as Karras et al. do it.
SampleCall measured_call(int64_t steps, OptionTexts options = {});

struct SamplerCost {
  double evaluations = 0, draws = 0;  // a step, in the middle of a run
};
// By a run on nothing. Throws Error.
SamplerCost cost_of(const Sampler& sampler);

// Trajectories of some points from noise to data in the plane, and the levels, as SVG text.
// Schedule auto: from the sampler's name, or the dialect, or else karras; flow on flow
// models.
struct PlotRequest {
  std::string sampler = "heun", schedule = "auto", options, schedule_options, dialect = "ebb";
  int64_t steps = 20, points = 16;
  DrawableSeed seed = 1;
  bool flow = false;
  bool steps_given = false;  // `steps` is not the default: an error where it has no meaning
};
std::string sampler_plot(const PlotRequest& request);  // throws Error
// Whether a text begins as such a plot does.
bool is_sampler_plot(std::string_view svg);

}  // namespace ebb
