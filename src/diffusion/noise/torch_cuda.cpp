// torch_cuda: one CUDA generator of PyTorch for the batch, or one per image.
#include "diffusion/noise/rng/draws.h"

namespace ebb::noises {
namespace {

struct Options {
  bool per_image = false;
  std::string type = "f32";
  GpuOptions gpu;
  void fields(auto&& f) {
    f("per_image", per_image, "a generator for each picture, seeded seed + number");
    f("type", type, "f32, f64, f16 or bf16");
    gpu.fields(f);
  }
};

Noise open(const NoiseCall& call, const Options& o) {
  return consecutive_noise({.name = "torch_cuda", .type = o.type, .gpu = o.gpu}, call, o.per_image);
}

}  // namespace

const NoiseSource& torch_cuda() {
  static const NoiseSource s = make_noise_source<Options>(
      {.name = "torch_cuda", .help = "PyTorch's generator for GPUs (Philox)"}, open);
  return s;
}

}  // namespace ebb::noises
