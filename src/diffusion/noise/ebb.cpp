// ebb: a function of (seed, image, draw) by counter-based random numbers.
#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "diffusion/noise/noise.h"

namespace ebb {
namespace {

void fill(const RandomKey& key, std::span<double> out) {
  std::vector<float> image(out.size());
  fill_normal(key, 0, image);
  std::copy(image.begin(), image.end(), out.begin());
}

void fill(const NoiseCall& call, uint32_t step, std::string_view use, std::span<double> out) {
  const auto elements = static_cast<size_t>(call.elements());
  const size_t size = static_cast<size_t>(call.batch()) * elements;
  require(out.size() == size, "noise: needs ", size, " numbers (got ", out.size(), ")");
  for (int64_t i = 0; i < call.batch(); ++i) {
    const bool own = !call.seeds.empty();
    fill({own ? call.image_seed(i) : call.seed, own ? 0 : static_cast<uint64_t>(call.image(i)),
          step, random_use(use)},
         out.subspan(static_cast<size_t>(i) * elements, elements));
  }
}

NoiseCall call_of(const ImageKeys& keys) {
  return {.seed = keys.seed, .images = keys.images, .shape = {keys.elements}};
}

}  // namespace

std::vector<double> initial_noise(const ImageKeys& keys) {
  std::vector<double> out(keys.images.size() * static_cast<size_t>(keys.elements));
  fill(call_of(keys), 0, "sample.start", out);
  return out;
}

NoiseFill keyed_noise(const ImageKeys& keys) {
  return [call = call_of(keys)](std::span<double> out, const NoiseDraw& draw) {
    fill(call, static_cast<uint32_t>(draw.index), "sample.step", out);
  };
}

namespace noises {

const NoiseSource& ebb() {
  static const NoiseSource s = make_noise_source<NoOptions>(
      {.name = "ebb", .help = "counter-based: the same in any batch, on any machine"},
      [](const NoiseCall& call, const NoOptions&) -> Noise {
        return {[call](std::span<double> out) { fill(call, 0, "sample.start", out); },
                [call](std::span<double> out, const NoiseDraw& draw) {
                  fill(call, static_cast<uint32_t>(draw.index), "sample.step", out);
                }};
      });
  return s;
}

}  // namespace noises
}  // namespace ebb
