#include "diffusion/noise/rng/generator.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "diffusion/noise/rng/philox.h"
#include "diffusion/noise/rng/torch_cpu.h"

namespace ebb {
namespace {

constexpr std::pair<std::string_view, NoiseType> types[] = {
    {"f32", NoiseType::f32},
    {"f64", NoiseType::f64},
    {"f16", NoiseType::f16},
    {"bf16", NoiseType::bf16},
    {"f16_from_f32", NoiseType::f16_from_f32},
    {"bf16_from_f32", NoiseType::bf16_from_f32}};

// The nearest number with `bits` binary digits, and none smaller than 2^lowest but its multiples.
double round_bits(double x, int bits, int lowest) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int unit = std::max(std::ilogb(x) - bits + 1, lowest);
  return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

NoiseType type_of(const std::string& name) {
  using Named = std::pair<std::string_view, NoiseType>;
  return find_known("noise: unknown number type", name, types, &Named::first).second;
}

}  // namespace

double round_to(NoiseType type, double x) {
  switch (type) {
    case NoiseType::f64: return x;
    case NoiseType::f32: return static_cast<double>(static_cast<float>(x));
    case NoiseType::f16:
    case NoiseType::f16_from_f32: return round_bits(x, 11, -24);
    default: return round_bits(x, 8, -133);
  }
}

void GeneratorKind::check() const {
  check_known("noise: unknown generator", name,
              std::vector<std::string>{"torch_cpu", "torch_cuda", "nv"});
  const NoiseType t = type_of(type);
  const bool drawn_as_f32 = t == NoiseType::f16_from_f32 || t == NoiseType::bf16_from_f32;
  require(name == "torch_cpu" || !drawn_as_f32, "noise: ", name, " has no type ", type);
  require(gpu.sm_count > 0 && gpu.threads >= 256,
          "noise: a GPU needs sm_count and at least 256 threads in each (", gpu.sm_count, ", ",
          gpu.threads, ")");
}

std::unique_ptr<Generator> make_generator(const GeneratorKind& kind, uint64_t seed) {
  kind.check();
  const NoiseType type = type_of(kind.type);
  if (kind.name == "nv") return std::make_unique<NvGenerator>(seed);
  if (kind.name == "torch_cuda")
    return std::make_unique<TorchCudaGenerator>(
        seed, type, static_cast<uint64_t>(kind.gpu.sm_count * (kind.gpu.threads / 256)));
  return std::make_unique<TorchCpuGenerator>(seed, type);
}

}  // namespace ebb
