// nv: the generators that imitate CUDA's on any machine, one for each picture (the `cuda` one of
// stable-diffusion.cpp, the NV one of Stable Diffusion web UI).
#include "diffusion/noise/rng/draws.h"

namespace ebb::noises {
namespace {

struct Options {
  bool per_image = true;
  void fields(auto&& f) {
    f("per_image", per_image, "a generator for each picture, seeded seed + number");
  }
};

Noise open(const NoiseCall& call, const Options& o) {
  return consecutive_noise({.name = "nv"}, call, o.per_image);
}

}  // namespace

const NoiseSource& nv() {
  static const NoiseSource s = make_noise_source<Options>(
      {.name = "nv", .help = "CUDA's generator (Philox) on any machine, per image"}, open);
  return s;
}

}  // namespace ebb::noises
