#include "base/error.h"
#include "base/names.h"
#include "diffusion/noise/noise.h"

#define X(name)                   \
  namespace ebb::noises {         \
  const ebb::NoiseSource& name(); \
  }
#include "ebb/gen/noises.inc"
#undef X

namespace ebb {

int64_t NoiseCall::batch() const {
  return static_cast<int64_t>(seeds.empty() ? images.size() : seeds.size());
}

int64_t NoiseCall::elements() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

int64_t NoiseCall::image(int64_t i) const {
  return seeds.empty() ? images[static_cast<size_t>(i)] : i;
}

uint64_t NoiseCall::image_seed(int64_t i) const {
  return seeds.empty() ? seed + static_cast<uint64_t>(image(i)) : seeds[static_cast<size_t>(i)];
}

const std::vector<const NoiseSource*>& all_noise_sources() {
  static const std::vector<const NoiseSource*> table = {
#define X(name) &noises::name(),
#include "ebb/gen/noises.inc"
#undef X
  };
  return table;
}

const NoiseSource& find_noise_source(std::string_view name) {
  for (const NoiseSource* s : all_noise_sources())
    if (same_name(s->name, name)) return *s;
  return *find_known("noise: unknown source", name, all_noise_sources(), &NoiseSource::name);
}

Noise open_noise(std::string_view source, const NoiseCall& call, const OptionTexts& options) {
  const NoiseSource& s = find_noise_source(source);
  require(call.batch() > 0, "noise: needs a picture");
  require(!call.shape.empty(), "noise: needs the shape of a picture");
  for (const int64_t d : call.shape)
    require(d > 0, "noise: the shape of a picture must be positive (", d, ")");
  for (int64_t i = 0; i < call.batch(); ++i)
    require(call.image(i) >= 0, "noise: pictures are counted from 0 (", call.image(i), ")");
  Noise noise = s.open(call, options);
  const auto size = static_cast<size_t>(call.batch() * call.elements());
  const auto check = [size](std::span<double> out) {
    require(out.size() == size, "noise: needs room for ", size, " numbers (got ", out.size(), ")");
  };
  return {[check, start = std::move(noise.start)](std::span<double> out) {
            check(out);
            start(out);
          },
          [check, step = std::move(noise.step)](std::span<double> out, const NoiseDraw& draw) {
            check(out);
            require(draw.index >= 0, "noise: draws are counted from 0 (", draw.index, ")");
            step(out, draw);
          },
          std::move(noise.seeds), std::move(noise.plain)};
}

}  // namespace ebb
