// Control networks of latent diffusion (ControlNet, Zhang et al. 2023, arXiv:2302.05543): a copy of
// the U-Net's encoder that sees an image beside the noisy one, and whose features are added to the
// U-Net's.
#pragma once

#include <functional>
#include <vector>

#include "nn/ldm_unet.h"

namespace ebb::nn {

// An image [H,W,3] in [0,1], or what an image encoder makes of one: [1,C] or [T,C].
inline constexpr std::string_view hint_image = "hint";
inline constexpr std::string_view control_strength = "strength";  // a factor of each residual
inline constexpr std::string_view control_task = "task";  // [1,tasks]: 1 for what the hint is
// Of an image adapter: where it acts, image_mask()'s; optional.
inline constexpr std::string_view control_mask = "mask";
// Whether it is one of the first three, which each network of a run has for itself.
bool own_control_input(std::string_view name);

// Of a network of several tasks (ControlNet++, "union"): the task is embedded, and a transformer
// makes of it and of the mean of the hint's features what is added to these.
struct ControlTasks {
  int64_t count = 0;  // 0: the hint is of one kind
  int64_t layers = 1;
};
struct LdmControl {
  LdmUnet unet;
  std::vector<int64_t> hint_channels;  // of the hint's features, whose sides halve one by one
  ControlTasks tasks = {};
};
// What a control network is given: `x` and `noise`, as the U-Net is; its conditions; `hint`, whose
// sides are 2^(hint_channels - 1) times those of x; `strength`; with tasks `task`.
std::vector<Condition> control_inputs(const LdmControl& c, int64_t in_channels);
// The residuals, under the names of the U-Net's conditions (control_name).
ValuesByName ldm_control(const Params& p, const LdmControl& c, const ValuesByName& in);

// A control network in a graph: residuals of its inputs.
using ControlNetwork = std::function<ValuesByName(Graph&, const ValuesByName& inputs)>;
// The U-Net with the sum of the residuals of control networks, and with all keys and values of
// image adapters, whose parameters have names of their own. Number k has the conditions hint.<k>
// and strength.<k> of the result, and may have mask.<k>; it shares all others. One that is empty
// has no part.
Network controlled(Network unet, std::vector<ControlNetwork> controls);

}  // namespace ebb::nn
