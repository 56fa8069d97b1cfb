// a1111: Stable Diffusion web UI's rules. A generator for each picture; variations of the first
// noise by a second seed and from another size; other numbers for the steps by a seed delta (ENSD).
#include <memory>

#include "base/error.h"
#include "diffusion/noise/rng/draws.h"
#include "diffusion/noise/rng/variation.h"

namespace ebb::noises {
namespace {

struct Options {
  std::string generator = "torch_cuda";
  int64_t ensd = 0, subseed = 0;
  double subseed_strength = 0;
  int64_t resize_height = 0, resize_width = 0;
  GpuOptions gpu;
  void fields(auto&& f) {
    f("generator", generator, "torch_cuda (GPU), torch_cpu (CPU) or nv (NV)");
    f("ensd", ensd,
      "eta noise seed delta: steps draw from seed + this; 0: from where the start "
      "ended");
    f("subseed", subseed, "variation seed, of picture 0");
    f("subseed_strength", subseed_strength,
      "from 0, the seed's noise, to 1, the subseed's; above "
      "0 all pictures have one seed, and subseeds count up");
    f("resize_height", resize_height, "of the latent whose noise this one has in its middle");
    f("resize_width", resize_width, "of that latent; 0: this one's noise");
    gpu.fields(f);
  }
  void check() const {
    require(subseed_strength >= 0 && subseed_strength <= 1,
            "a1111: subseed_strength must lie in [0, 1] (", subseed_strength, ")");
    require(resize_height >= 0 && resize_width >= 0,
            "a1111: the size to resize from must not be negative (", resize_height, ", ",
            resize_width, ")");
  }

  bool resizes() const { return resize_height > 0 && resize_width > 0; }
  bool varies() const { return resizes() || subseed_strength > 0; }
};

// Every image's seed, in `seeds`.
NoiseCall with_seeds(const NoiseCall& call, const Options& o) {
  NoiseCall out = call;
  out.seeds.clear();
  for (int64_t i = 0; i < call.batch(); ++i)
    out.seeds.push_back(call.seeds.empty() && o.subseed_strength > 0 ? call.seed
                                                                     : call.image_seed(i));
  return out;
}

// The first noise of one picture, [C,H,W]; `own` is what its generator gives.
std::vector<double> vary(std::vector<double> own, const NoisePlanes& shape, const Options& o,
                         uint64_t seed, uint64_t subseed) {
  NoisePlanes drawn = shape;
  if (o.resizes()) drawn = {shape.channels, o.resize_height, o.resize_width};
  const bool same = drawn.height == shape.height && drawn.width == shape.width;
  const GeneratorKind kind{.name = o.generator, .gpu = o.gpu};
  const auto fresh = [&](uint64_t s) {
    std::vector<double> z(drawn.size());
    make_generator(kind, s)->normal(z);
    return z;
  };
  std::vector<double> noise = same ? own : fresh(seed);
  if (o.subseed_strength > 0) noise = slerp(o.subseed_strength, noise, fresh(subseed), drawn);
  if (same) return noise;
  paste_centered(noise, drawn, own, shape);
  return own;
}

Noise open(const NoiseCall& call, const Options& o) {
  require(!o.varies() || call.shape.size() == 3,
          "a1111: variations need a picture of height, width and channels (got ", call.shape.size(),
          " sizes)");
  const GeneratorKind kind{.name = o.generator, .gpu = o.gpu};
  const NoiseCall seeded = with_seeds(call, o);
  Noise noise = consecutive_noise(kind, seeded, true);
  noise.seeds = seeded.seeds;
  if (o.varies()) {
    noise.plain = noise.start;
    noise.start = [=](std::span<double> out) {
      const NoisePlanes shape{call.shape[2], call.shape[0], call.shape[1]};
      const BatchLayout layout(seeded, true);
      std::vector<double> all, own(shape.size());
      for (int64_t i = 0; i < call.batch(); ++i) {
        const uint64_t seed = seeded.image_seed(i);
        make_generator(kind, seed)->normal(own);
        const std::vector<double> z =
            vary(own, shape, o, seed, static_cast<uint64_t>(o.subseed + call.image(i)));
        all.insert(all.end(), z.begin(), z.end());
      }
      layout.arrange(all, out);
    };
  }
  if (o.ensd != 0) {
    NoiseCall moved = seeded;
    for (uint64_t& s : moved.seeds) s += static_cast<uint64_t>(o.ensd);
    const auto draws = std::make_shared<Draws>(kind, moved, true);
    noise.step = [draws](std::span<double> out, const NoiseDraw& d) { (*draws)(d.index, out); };
  }
  return noise;
}

}  // namespace

const NoiseSource& a1111() {
  static const NoiseSource s = make_noise_source<Options>(
      {.name = "a1111", .help = "Stable Diffusion web UI's rules: variations, ENSD"}, open);
  return s;
}

}  // namespace ebb::noises
