// torch_cpu: one CPU generator of PyTorch for the batch, or one per image.
#include "diffusion/noise/rng/draws.h"

namespace ebb::noises {
namespace {

struct Options {
  bool per_image = false;
  std::string type = "f32";
  void fields(auto&& f) {
    f("per_image", per_image, "a generator for each picture, seeded seed + number");
    f("type", type, "f32, f64, f16 or bf16; f16_from_f32 and bf16_from_f32: drawn as f32");
  }
};

Noise open(const NoiseCall& call, const Options& o) {
  return consecutive_noise({.name = "torch_cpu", .type = o.type}, call, o.per_image);
}

}  // namespace

const NoiseSource& torch_cpu() {
  static const NoiseSource s = make_noise_source<Options>(
      {.name = "torch_cpu", .help = "PyTorch's generator for CPUs (Mersenne Twister)"}, open);
  return s;
}

}  // namespace ebb::noises
