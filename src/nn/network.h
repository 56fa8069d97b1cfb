// Network: a denoiser network as a function from a noisy image to an image-shaped output. The
// preconditioning around it defines x and noise.
#pragma once

#include <functional>
#include <optional>

#include "ir/graph.h"
#include "ops/prim/random/op.h"

namespace ebb::nn {

struct NetworkInputs {
  Value x;        // [N,H,W,C], scaled by the preconditioning
  Value noise;    // f32 [N]: the noise level as the network was trained to read it (c_noise, or t)
  Value classes;  // i64 [N], outside of [0, classes) means none; no value: none for all
  Value augment;  // f32 [N,A] of non-leaking augmentation; no value: none
  std::optional<ops::RandomKeys> random;  // of dropout; without it there is none
};

// F [N,H,W,C']. Adds the parameters as sources; called twice on a graph it shares them.
using Network = std::function<Value(Graph&, const NetworkInputs&)>;

}  // namespace ebb::nn
