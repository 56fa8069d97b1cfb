// Benches of whole training steps: loss, gradients, clipping, AdamW and the weights' average.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/fit.h"
#include "runtime/op_bench.h"

namespace ebb {

// "train_step/name" of the cases on the device.
std::vector<std::string> model_bench_names(const Device& device);

struct ModelBench {
  std::string filter;  // runs the cases whose "train_step/name" contains it
  Recompute recompute = {};
};

// Runs the cases in f32 and, where the device is fast in it, bf16: tiny (28x28x1, batch 64),
// songunet (DDPM++ of 64 channels, 32x32x3, batch 16) and adm (unet64, 64x64x3, batch 8). Each is
// checked first: the loss and the gradients' norm are those of the unfused plan in f32. Throws
// Error if not.
void bench_models(const Context& context, const ModelBench& what, const Ceilings& ceilings,
                  const std::function<void(const BenchResult&)>& report);

}  // namespace ebb
