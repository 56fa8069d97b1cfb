// What samplers do, measured: their cost by counting, their ways on data whose denoiser is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "diffusion/solver/sampler.h"

namespace ebb {

// Data of a few equal round blobs, in `dims` dimensions: the best denoiser is a formula.
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

struct SamplerCost {
  double evaluations = 0, draws = 0;  // a step, in the middle of a run
};
// By a run on nothing. Throws Error.
SamplerCost cost_of(const Sampler& sampler);

// A way of some points from noise to data in the plane, and its levels, as an SVG file's text.
struct PlotRequest {
  std::string sampler = "heun", schedule = "karras", options, dialect = "ebb";
  int64_t steps = 12, seed = 1, points = 24;
  bool flow = false;
};
std::string sampler_plot(const PlotRequest& request);  // throws Error

}  // namespace ebb
