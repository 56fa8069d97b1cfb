// Benches of networks: whole training steps (loss, gradients, clipping, AdamW and the weights'
// average), and single evaluations as sampling makes them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/fit.h"
#include "runtime/op_bench.h"
#include "train/split.h"

namespace ebb {

// "train_step/name", "denoise/name" and those of components: the cases on the device.
std::vector<std::string> model_bench_names(const Device& device);

struct ModelBench {
  std::string filter;               // runs the cases whose name contains it
  Recompute recompute = {};         // of training steps
  bool profile = false;             // measure each step of the plans as well
  std::optional<DType> dtype = {};  // of evaluations, in place of the usual ones
  // Of training steps: their images a device, 0 for the case's, and, where the device is one of
  // several, what is split; the ranks are the device's.
  int64_t batch = 0;
  train::Split split = {};
};

// In which evaluations are measured: the one that was asked for, else those of `usual` that the
// device is fast in.
std::vector<DType> evaluation_dtypes(const ModelBench& what, const Device& device,
                                     const std::vector<DType>& usual);

// Runs training steps in f32 and, where the device is fast in it, bf16: tiny (28x28x1, batch 64),
// songunet (DDPM++ of 64 channels, 32x32x3, batch 16) and adm (unet64, 64x64x3, batch 8). Each is
// checked first: the loss and the gradients' norm are those of the unfused plan in f32. Throws
// Error if not.
void bench_models(const Context& context, const ModelBench& what, Ceilings& ceilings,
                  const std::function<void(const BenchResult&)>& report);

// Runs evaluations of the same networks, of a batch with a class for each image and without
// guidance; on accelerators also unet64, adm64 (32 images) and dit_xl2 (64 latents) in bf16.
// Weights and inputs are hashed. Each is checked first: against the unfused plan in f32, the large
// ones for values that are not finite. Throws Error if not.
void bench_denoise(const Context& context, const ModelBench& what, Ceilings& ceilings,
                   const std::function<void(const BenchResult&)>& report);

// One text or image through text encoders and autoencoders of published sizes, on hashed weights
// and inputs: "encode_text/clip_l", "decode/vae_1024" and so on, in bf16, on hosts the small ones
// and in f32, too. Throws Error for an output that is not finite.
std::vector<std::string> component_bench_names(const Device& device);
void bench_components(const Context& context, const ModelBench& what, Ceilings& ceilings,
                      const std::function<void(const BenchResult&)>& report);

}  // namespace ebb
