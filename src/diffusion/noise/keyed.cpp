#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "diffusion/noise/noise.h"

namespace ebb {
namespace {

void fill(const ImageKeys& keys, uint32_t step, std::string_view use, std::span<double> out) {
  const auto elements = static_cast<size_t>(keys.elements);
  require(out.size() == keys.images.size() * elements, "noise: needs ",
          keys.images.size() * elements, " numbers (got ", out.size(), ")");
  std::vector<float> image(elements);
  for (size_t i = 0; i < keys.images.size(); ++i) {
    fill_normal({keys.seed, static_cast<uint64_t>(keys.images[i]), step, random_use(use)}, 0,
                image);
    std::copy(image.begin(), image.end(), out.begin() + static_cast<int64_t>(i * elements));
  }
}

}  // namespace

std::vector<double> initial_noise(const ImageKeys& keys) {
  std::vector<double> out(keys.images.size() * static_cast<size_t>(keys.elements));
  fill(keys, 0, "sample.start", out);
  return out;
}

NoiseFill keyed_noise(ImageKeys keys) {
  return [keys = std::move(keys)](std::span<double> out, const NoiseDraw& draw) {
    fill(keys, static_cast<uint32_t>(draw.index), "sample.step", out);
  };
}

}  // namespace ebb
