// Inpainting with networks that were not made for it: known parts are put back at every
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
  std::vector<T> data;   // what is known
  std::vector<T> noise;  // standard normal, the same in every evaluation; may be empty: 0
  std::vector<T> mask;   // 1: made anew, 0: known; of the size of data
  Space space = Space::ve;
  // Differential diffusion: where the mask is at or above this share the image is made anew at
  // this level, elsewhere it is known. None: the mask is taken as it is.
  std::function<double(double sigma)> threshold = {};
  bool input = true;   // the network sees known parts at their noise level
  bool output = true;  // known regions of the prediction are restored
};

// Where programs put known parts back.
struct KnownRegions {
  bool input = true, output = true;  // Inpaint's
  bool end = false;                  // blend() of what comes out of the run
  bool rounds_mask = false;          // round_mask() first, but for differential diffusion
};
// By dialect:
//   ebb, comfy  input and output
//   a1111       output and end; its samplers of timesteps (ddim, ddim_cfg_pp, plms, uni_pc): input
//               and end. kdiff as a1111, which wrapped it
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

// 0 or 1 for each value: below 0.5 or not.
template <class T>
void round_mask(std::span<T> mask);

// How far a timestep lies between the last (0) and the first (1) of a run: the threshold of
// differential diffusion. 1 where both are equal.
double differential_threshold(double timestep, double first, double last);

extern template HostDenoise<float> inpainting(HostDenoise<float>, Inpaint<float>);
extern template HostDenoise<double> inpainting(HostDenoise<double>, Inpaint<double>);

}  // namespace ebb
