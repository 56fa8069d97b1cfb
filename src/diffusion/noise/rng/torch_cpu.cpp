#include "diffusion/noise/rng/torch_cpu.h"

#include <cmath>
#include <numbers>

namespace ebb {
namespace {

constexpr size_t block_size = 16;

double to_f32(double x) { return round_to(NoiseType::f32, x); }

// u: 8 numbers for radii, then 8 for angles.
template <class T>
void block_normals(std::span<double> u) {
  for (size_t j = 0; j < block_size / 2; ++j) {
    const T radius = std::sqrt(T{-2} * std::log(1 - static_cast<T>(u[j])));
    const T angle = static_cast<T>(2 * std::numbers::pi) * static_cast<T>(u[j + block_size / 2]);
    u[j] = static_cast<double>(radius * std::cos(angle));
    u[j + block_size / 2] = static_cast<double>(radius * std::sin(angle));
  }
}

// The same with every intermediate result in half or bf16.
void block_normals_rounded(std::span<double> u, NoiseType type) {
  const auto r = [type](double x) { return round_to(type, x); };
  for (size_t j = 0; j < block_size / 2; ++j) {
    const double radius = r(std::sqrt(r(-2 * r(std::log(r(1 - u[j]))))));
    const double angle = r(2 * std::numbers::pi * u[j + block_size / 2]);
    u[j] = r(radius * r(std::cos(angle)));
    u[j + block_size / 2] = r(radius * r(std::sin(angle)));
  }
}

}  // namespace

// As many bits as the type holds.
double TorchCpuGenerator::uniform() {
  if (type_ == NoiseType::f64) return uniform53();
  const int bits = type_ == NoiseType::f16 ? 11 : type_ == NoiseType::bf16 ? 8 : 24;
  const uint32_t mask = (uint32_t{1} << bits) - 1;
  return std::ldexp(static_cast<double>(static_cast<uint32_t>(words_()) & mask), -bits);
}

double TorchCpuGenerator::uniform53() {
  const uint64_t high = words_();
  const uint64_t word = high << 32 | words_();
  return static_cast<double>(word & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
}

double TorchCpuGenerator::single() {
  if (waiting_) {
    const double z = *waiting_;
    waiting_.reset();
    return z;
  }
  const double angle = 2 * std::numbers::pi * uniform53();
  const double radius = std::sqrt(-2 * std::log1p(-uniform53()));
  waiting_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

void TorchCpuGenerator::fill_block(std::span<double> block) {
  if (type_ == NoiseType::f64) return block_normals<double>(block);
  if (type_ == NoiseType::f16 || type_ == NoiseType::bf16)
    return block_normals_rounded(block, type_);
  block_normals<float>(block);
  if (type_ == NoiseType::f32) return;
  for (double& v : block) v = round_to(type_, v);
}

void TorchCpuGenerator::fill(std::span<double> out) {
  for (double& v : out) v = uniform();
  for (size_t at = 0; at + block_size <= out.size(); at += block_size)
    fill_block(out.subspan(at, block_size));
}

void TorchCpuGenerator::normal(std::span<double> out) {
  const size_t n = out.size(), tail = n % block_size;
  if (n < block_size) {
    for (double& v : out)
      v = type_ == NoiseType::f64 ? single() : round_to(type_, to_f32(single()));
    return;
  }
  // Made from f32 there is a block at a time, so what the last one replaces was never drawn.
  const bool by_block = type_ == NoiseType::f16_from_f32 || type_ == NoiseType::bf16_from_f32;
  fill(by_block ? out.first(n - tail) : out);
  if (tail > 0) fill(out.last(block_size));
}

}  // namespace ebb
