// Inpainting with networks that were not trained for it: known regions are restored at every
// evaluation, as a wrapper of a denoiser.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "diffusion/solver/host_latents.h"
#include "diffusion/solver/space.h"

namespace ebb {

template <class T>
struct Inpaint {
  std::vector<T> data;   // the known image
  std::vector<T> noise;  // standard normal, the same in every evaluation; may be empty: 0
  std::vector<T> mask;   // 1: generated, 0: known; of the size of data
  Space space = Space::ve;
  // Differential diffusion: where the mask is at or above this fraction the image is generated at
  // this level, elsewhere it is known. None: the mask is used as it is.
  std::function<double(double sigma)> threshold = {};
  bool input = true;   // known regions of the network's input are at their noise level
  bool output = true;  // known regions of the prediction are restored
  // With `input`, as samplers restore whose state is sqrt(alpha_bar) x: the known part of that is
  // the image without noise, whatever the level, and what is predicted is the noise, so D moves by
  // what the input was moved by.
  bool clean_input = false;
};

// Where programs restore known regions.
struct KnownRegions {
  bool input = true, output = true;  // Inpaint's
  bool end = false;                  // blend() of the result of the run
  bool rounds_mask = false;          // round_mask() first, except for differential diffusion
  bool other_noise = false;          // the known part has noise of its own, of the next seed
  bool clean_input = false;          // Inpaint's
};
// By dialect:
//   ebb, comfy  input and output; comfy's ddim with noise of its own
//   a1111       output and end; its samplers of timesteps (ddim, ddim_cfg_pp, plms, uni_pc): clean
//               input and end. kdiff as a1111, which wrapped it
//   diffusers   in the state, after each step: for masks of 0 and 1, which its pipelines make of
//               all masks (round_mask), and elementwise samplers that is input and end
//   sdcpp       output
// `sampler`: by any of its names. Throws Error.
KnownRegions known_regions(std::string_view dialect, std::string_view sampler);

template <class T>
HostDenoise<T> inpainting(HostDenoise<T> denoise, Inpaint<T> how);

// out = mask out + (1 - mask) data.
template <class T>
void blend(std::span<const T> data, std::span<const T> mask, std::span<T> out);

// Rounds each value to 0 or 1: below 0.5 or not.
template <class T>
void round_mask(std::span<T> mask);

// The relative position of a timestep between the last (0) and the first (1) of a run: the
// threshold of differential diffusion. 1 if both are equal.
double differential_threshold(double timestep, double first, double last);

extern template HostDenoise<float> inpainting(HostDenoise<float>, Inpaint<float>);
extern template HostDenoise<double> inpainting(HostDenoise<double>, Inpaint<double>);

}  // namespace ebb
