// brownian: steps follow one path of Brownian motion through the noise levels, so runs of different
// length are alike (k-diffusion's BrownianTreeNoiseSampler on torchsde's trees).
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "base/error.h"
#include "diffusion/noise/rng/brownian_tree.h"
#include "diffusion/noise/rng/draws.h"

namespace ebb::noises {
namespace {

struct Options {
  bool per_image = false;
  std::string generator = "torch_cpu";
  GpuOptions gpu;
  void fields(auto&& f) {
    f("per_image", per_image, "a path for each picture, of seed + number");
    f("generator", generator, "torch_cpu, torch_cuda or nv");
    gpu.fields(f);
  }
};

// The trees of a batch: W between the lowest level above 0 and the highest, as f32.
class Paths {
 public:
  Paths(const NoiseCall& call, const GeneratorKind& kind, bool per_image)
      : layout_(call, per_image), increment_(layout_.size()), drawn_(layout_.size()) {
    BrownianTree::Range range{std::numeric_limits<double>::infinity(), 0};
    for (const double sigma : call.sigmas) {
      const double s = static_cast<double>(static_cast<float>(sigma));
      if (s > 0) range.start = std::min(range.start, s);
      range.end = std::max(range.end, s);
    }
    const std::vector<uint64_t> seeds = generator_seeds(call, per_image);
    const auto normals = [kind](uint64_t seed, std::span<double> out) {
      make_generator(kind, seed)->normal(out);
    };
    for (const uint64_t seed : seeds)
      trees_.emplace_back(range, seed, layout_.size() / seeds.size(), normals);
  }

  void operator()(double from, double to, std::span<double> out) {
    const auto a = static_cast<float>(from), b = static_cast<float>(to);
    // A step of length 0 has no increment: samplers that draw for such a substep multiply it by 0.
    if (a == b) return std::fill(out.begin(), out.end(), 0.0);
    const size_t share = increment_.size() / trees_.size();
    for (size_t i = 0; i < trees_.size(); ++i)
      trees_[i].increment(static_cast<double>(std::min(a, b)), static_cast<double>(std::max(a, b)),
                          std::span(increment_).subspan(i * share, share));
    const float scale = std::sqrt(std::abs(b - a)) * (a < b ? 1.0f : -1.0f);
    for (size_t i = 0; i < drawn_.size(); ++i)
      drawn_[i] = static_cast<double>(increment_[i] / scale);
    layout_.arrange(drawn_, out);
  }

 private:
  BatchLayout layout_;
  std::vector<BrownianTree> trees_;
  std::vector<float> increment_;
  std::vector<double> drawn_;
};

Noise open(const NoiseCall& call, const Options& o) {
  const GeneratorKind kind{.name = o.generator, .gpu = o.gpu};
  Noise noise = consecutive_noise(kind, call, o.per_image);
  // Made when they are needed: a run of one step draws nothing, and has no range.
  const auto paths = std::make_shared<std::unique_ptr<Paths>>();
  noise.step = [=](std::span<double> out, const NoiseDraw& draw) {
    if (!*paths) *paths = std::make_unique<Paths>(call, kind, o.per_image);
    (**paths)(draw.from, draw.to, out);
  };
  return noise;
}

}  // namespace

const NoiseSource& brownian() {
  static const NoiseSource s = make_noise_source<Options>(
      {.name = "brownian", .help = "steps along one Brownian path (torchsde's tree)"}, open);
  return s;
}

}  // namespace ebb::noises
