// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as
// easy as 1, 2, 3"). A draw is a function of (seed, image, step, use, index): the same picture
// whatever the batch, the order of calls or the device.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/hash.h"

namespace ebb {

using Philox = std::array<uint32_t, 4>;

constexpr Philox philox4x32(Philox c, uint64_t key) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// What a stream of numbers is drawn for.
struct RandomKey {
  uint64_t seed = 0;
  uint64_t image = 0;  // index of the image in the data set or of the sample
  uint32_t step = 0;   // training step or denoising step
  uint32_t use = 0;    // a hash of what it is for ("noise", "dropout.3", ...)
};

// The number of a use, for RandomKey.
constexpr uint32_t random_use(std::string_view use) { return static_cast<uint32_t>(fnv1a(use)); }

// Four random words: number `block` of the stream `key`. The image index enters the key, mixed,
// so that all of its 64 bits count.
constexpr Philox random_block(const RandomKey& key, uint64_t block) {
  const uint64_t mixed = key.seed ^ (key.image * 0x9e3779b97f4a7c15ull);
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), key.step,
                     key.use ^ static_cast<uint32_t>(key.image >> 32)},
                    mixed);
}

// In (0, 1): 23 bits and a half, which f32 holds exactly; never 0 nor 1.
constexpr float uniform_from(uint32_t word) {
  return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
}

// Two standard normals from two words (Box and Muller 1958).
inline std::array<float, 2> normals_from(uint32_t a, uint32_t b) {
  const float r = std::sqrt(-2.0f * std::log(uniform_from(a)));
  const float t = 6.283185307179586f * uniform_from(b);
  return {r * std::cos(t), r * std::sin(t)};
}

// Elements [4 * first_block, ...) of the stream `key`: element e is number e % 4 of block e / 4.
// Uniform in (0, 1), or standard normal.
void fill_uniform(const RandomKey& key, uint64_t first_block, std::span<float> out);
void fill_normal(const RandomKey& key, uint64_t first_block, std::span<float> out);

}  // namespace ebb
