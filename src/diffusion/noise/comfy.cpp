// comfy: ComfyUI's rules. The start is drawn on the CPU, the batch at once; steps by a generator of
// their own on the device that samples, with the same seed, or the next one where that is the CPU.
#include <memory>
#include <numeric>

#include "base/error.h"
#include "diffusion/noise/rng/draws.h"

namespace ebb::noises {
namespace {

struct Options {
  std::string steps = "torch_cuda";
  GpuOptions gpu;
  void fields(auto&& f) {
    f("steps", steps, "generator of the steps: torch_cuda, or torch_cpu where that samples");
    gpu.fields(f);
  }
  void check() const {
    require(steps == "torch_cuda" || steps == "torch_cpu",
            "comfy: steps must be torch_cuda or torch_cpu (", steps, ")");
  }
};

// A part of a larger batch is drawn image by image, up to the last one needed.
Noise part_of_batch(const NoiseCall& call) {
  NoiseCall one = call;
  one.images = {0};
  const auto draws = std::make_shared<Draws>(GeneratorKind{}, one, false);
  return {[draws, call](std::span<double> out) {
    const auto elements = static_cast<size_t>(call.elements());
    for (size_t i = 0; i < call.images.size(); ++i)
      (*draws)(call.images[i], out.subspan(i * elements, elements));
  }};
}

Noise open(const NoiseCall& call, const Options& o) {
  NoiseCall batch = call;
  std::iota(batch.images.begin(), batch.images.end(), 0);
  const bool whole = !call.seeds.empty() || batch.images == call.images;
  Noise noise = whole ? consecutive_noise({}, call, false) : part_of_batch(call);

  batch.seed = generator_seeds(call, false)[0] + (o.steps == "torch_cpu" ? 1 : 0);
  batch.seeds.clear();
  const auto steps =
      std::make_shared<Draws>(GeneratorKind{.name = o.steps, .gpu = o.gpu}, batch, false);
  noise.step = [steps](std::span<double> out, const NoiseDraw& draw) { (*steps)(draw.index, out); };
  return noise;
}

}  // namespace

const NoiseSource& comfy() {
  static const NoiseSource s =
      make_noise_source<Options>({.name = "comfy", .help = "ComfyUI's rules"}, open);
  return s;
}

}  // namespace ebb::noises
