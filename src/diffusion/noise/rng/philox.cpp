#include "diffusion/noise/rng/philox.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "base/random.h"

namespace ebb {
namespace {

constexpr uint64_t block_size = 256;
constexpr float two_pi_step = 0x1p-32f * 6.2831855f;  // cuRAND's

struct Normals {
  double sine, cosine;
};

// cuRAND's for f32: uniforms in f32, each with one rounding.
Normals normals_f32(uint32_t x, uint32_t y) {
  const auto uniform = [](uint32_t word, float step) {
    const auto scaled = static_cast<double>(static_cast<float>(word)) * static_cast<double>(step);
    return static_cast<float>(scaled + static_cast<double>(step / 2));
  };
  const float radius = std::sqrt(-2 * std::log(uniform(x, 0x1p-32f)));
  const float angle = uniform(y, two_pi_step);
  return {static_cast<double>(radius * std::sin(angle)),
          static_cast<double>(radius * std::cos(angle))};
}

// cuRAND's for f64: 53 bits of two words each.
Normals normals_f64(const Philox& w) {
  const auto uniform = [](uint32_t low, uint32_t high) {
    return static_cast<double>(low ^ static_cast<uint64_t>(high) << 21) * 0x1p-53 + 0x1p-54;
  };
  const double radius = std::sqrt(-2 * std::log(uniform(w[0], w[1])));
  const double angle = 2 * std::numbers::pi * uniform(w[2], w[3]);
  return {radius * std::sin(angle), radius * std::cos(angle)};
}

Philox words_of(uint64_t seed, uint64_t call, uint64_t stream) {
  return philox4x32({static_cast<uint32_t>(call), static_cast<uint32_t>(call >> 32),
                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                    seed);
}

}  // namespace

void TorchCudaGenerator::normal(std::span<double> out) {
  const uint64_t n = out.size();
  if (n == 0) return;
  const uint64_t threads = block_size * std::min((n + block_size - 1) / block_size, grid_limit_);
  const uint64_t unroll = type_ == NoiseType::f64 ? 2 : 4;
  uint64_t first = 0;
  for (; first < n; first += threads * unroll, offset_ += 4) {
    for (uint64_t thread = 0; thread < std::min(threads, n - first); ++thread) {
      const Philox w = words_of(seed_, offset_ / 4, thread);
      for (uint64_t k = 0; k < unroll && first + thread + k * threads < n; k += 2) {
        const Normals z = unroll == 2 ? normals_f64(w) : normals_f32(w[k], w[k + 1]);
        const uint64_t at = first + thread + k * threads;
        out[at] = round_to(type_, z.sine);
        if (at + threads < n) out[at + threads] = round_to(type_, z.cosine);
      }
    }
  }
}

void NvGenerator::normal(std::span<double> out) {
  for (uint64_t i = 0; i < out.size(); ++i) {
    const Philox w = words_of(seed_, calls_, i);
    const double u = w[0] * 0x1p-32 + 0x1p-33;
    const double angle = (w[1] + 0.5) * static_cast<double>(two_pi_step);
    out[i] = round_to(NoiseType::f32, std::sqrt(-2 * std::log(u)) * std::sin(angle));
  }
  ++calls_;
}

}  // namespace ebb
