// Noise: the standard normal numbers that a sampler draws. src/diffusion/noise/<s>.cpp defines
// `const NoiseSource& ebb::noises::<s>()`.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace ebb {

// A draw: the `index`-th (from 0) of a run, for the step from one noise level to another.
struct NoiseDraw {
  int64_t index = 0;
  double from = 0, to = 0;
};

// Writes standard normal numbers for a batch, [N,...] row-major.
using NoiseFill = std::function<void(std::span<double> out, const NoiseDraw& draw)>;

// The batch that a run draws noise for.
struct NoiseCall {
  uint64_t seed = 0;
  std::vector<int64_t> images = {0};  // indices of the batch's images among those of the seed
  std::vector<uint64_t> seeds = {};   // or one seed per image; their indices are then 0, 1, ...
  // Of an image: [H,W,C], which other programs draw in the order [C,H,W]; or up to two sizes, drawn
  // in memory order.
  std::vector<int64_t> shape = {};
  std::vector<double> sigmas = {};  // noise levels of the run, for Brownian paths

  int64_t batch() const;
  int64_t elements() const;              // of an image
  int64_t image(int64_t i) const;        // the index of the batch's i-th image
  uint64_t image_seed(int64_t i) const;  // its seed if images have their own: seed + image
};

// The noise of a run. Both are functions of their arguments: the order of calls does not matter,
// but that of the run is the fastest.
struct Noise {
  std::function<void(std::span<double> out)> start;  // the first state is first level * start
  NoiseFill step;
  // Of the pictures' generators, where the source's options say other ones than the call.
  std::vector<uint64_t> seeds = {};
  std::function<void(std::span<double> out)> plain = {};  // the start before options vary it
};

struct NoiseSource {
  std::string name, help;
  std::function<Noise(const NoiseCall& call, const OptionTexts& options)> open = {};
  std::function<std::vector<Option>()> options = {};
};

const std::vector<const NoiseSource*>& all_noise_sources();
// Ignores case. Throws Error, suggests the nearest.
const NoiseSource& find_noise_source(std::string_view name);

// Throws Error for calls and options that the source does not support.
Noise open_noise(std::string_view source, const NoiseCall& call, const OptionTexts& options = {});

// ---- our own: a function of (seed, image, draw), whatever the batch -------------------------

// The images of a batch.
struct ImageKeys {
  uint64_t seed = 0;
  std::vector<int64_t> images;
  int64_t elements = 0;  // of one image
};
std::vector<double> initial_noise(const ImageKeys& keys);  // [N * elements]
NoiseFill keyed_noise(const ImageKeys& keys);              // different noise for every draw

// ---- details -------------------------------------------------------------------------------

// A source whose options are a struct with fields() and, to refuse values, check().
template <class Options>
NoiseSource make_noise_source(NoiseSource about, Noise (*open)(const NoiseCall&, const Options&)) {
  about.open = [open, name = about.name](const NoiseCall& call, const OptionTexts& texts) {
    return open(call, read_options<Options>(texts, "noise " + name));
  };
  about.options = [] { return describe<Options>(); };
  return about;
}

}  // namespace ebb
