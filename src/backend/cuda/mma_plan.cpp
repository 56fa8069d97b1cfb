#include "backend/cuda/mma_plan.h"

#include <algorithm>
#include <cstdint>

namespace ebb::cuda {
namespace {

constexpr int64_t largest_index = (int64_t{1} << 31) - 4096;
constexpr int64_t largest_workspace = int64_t{1} << 29;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a block of a kernel takes, in clocks of a multiprocessor. Measured on sm_90; the ratios are
// what matters.
struct TileCost {
  int64_t depth;      // of a step along k
  int64_t residents;  // blocks that share a multiprocessor
  double step;        // for each step when the multiprocessor is full
  double alone;       // a step's latency
};

TileCost cost_of_tile(bool tensor, int64_t tile) {
  if (tensor) return tile == 128 ? TileCost{32, 2, 650, 900} : TileCost{32, 4, 240, 450};
  return tile == 128 ? TileCost{16, 2, 2800, 3200} : TileCost{16, 6, 900, 1300};
}

bool on_tensor_cores(const GemmTask& t, const CudaDevice& device) {
  if (t.a != t.b || t.a == DType::f32) return false;
  return t.a == DType::f16 || device.capability() >= 80;
}

bool pieces_fit(DType dtype, int64_t run) { return run * size_of(dtype) % 16 == 0; }

struct Choice {
  int64_t tile, splits;
  double clocks;
};

double clocks(const GemmTask& t, const CudaDevice& device, const Choice& c) {
  const TileCost cost = cost_of_tile(on_tensor_cores(t, device), c.tile);
  const int64_t sms = device.multiprocessors();
  const int64_t blocks = divide_up(t.m, c.tile) * divide_up(t.n, c.tile) * t.batch * c.splits;
  const int64_t steps = divide_up(divide_up(t.k, cost.depth), c.splits);
  const int64_t each = divide_up(blocks, sms);  // blocks of the busiest multiprocessor
  const auto round = [&](int64_t residents) {
    constexpr double start_and_end = 3000;
    const double step = std::max(cost.alone, static_cast<double>(residents) * cost.step);
    return static_cast<double>(steps) * step + start_and_end;
  };
  double total = static_cast<double>(each / cost.residents) * round(cost.residents);
  if (each % cost.residents > 0) total += round(each % cost.residents);
  if (c.splits > 1) {
    constexpr double launch = 4000, bytes_per_clock = 2500;
    const double bytes = static_cast<double>(t.out_rows * t.n) * 4;
    total += launch + 2 * static_cast<double>(c.splits) * bytes / bytes_per_clock;
  }
  return total;
}

}  // namespace

bool whole_pieces(const void* data, DType dtype, int64_t run) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && pieces_fit(dtype, run);
}

bool gemm_supports(const GemmTask& t) {
  const int64_t tiles = divide_up(t.m, 64) * divide_up(t.n, 64);
  return t.m < largest_index && t.n < largest_index && t.k < largest_index &&
         tiles * std::max<int64_t>(t.batch, 1) < largest_index / 64;
}

std::vector<Tune> gemm_space(const GemmTask& t, const CudaDevice& device) {
  const bool fast = pieces_fit(t.a, t.a_run) && pieces_fit(t.b, t.b_run) && t.a == t.b &&
                    (t.a == DType::f32 || on_tensor_cores(t, device));
  const int64_t depth = cost_of_tile(on_tensor_cores(t, device), 64).depth;
  std::vector<Choice> choices;
  for (const int64_t tile : {128, 64}) {
    if (tile == 128 && !fast) continue;
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      constexpr int64_t fewest_steps = 4;
      if (splits > 1 && (divide_up(t.k, depth) < fewest_steps * splits ||
                         splits * t.out_rows * t.n * 4 > largest_workspace))
        continue;
      Choice c{tile, splits, 0};
      c.clocks = clocks(t, device, c);
      choices.push_back(c);
    }
  }
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& x, const Choice& y) { return x.clocks < y.clocks; });
  std::vector<Tune> out;
  constexpr size_t most = 6;
  constexpr double too_slow = 2;
  for (const Choice& c : choices)
    if (out.size() < most && c.clocks <= too_slow * choices[0].clocks)
      out.push_back({{{"tile", c.tile}, {"splits", c.splits}}});
  return out;
}

GemmPlan gemm_plan(const GemmTask& t, const Tune& tune, const CudaDevice& device) {
  const Tune best = tune.values.empty() ? gemm_space(t, device)[0] : tune;
  GemmPlan p{.tensor = on_tensor_cores(t, device),
             .tile = best.value("tile", 64),
             .splits = best.value("splits", 1)};
  if (p.splits > 1) p.workspace = p.splits * t.out_rows * t.n * 4;
  return p;
}

}  // namespace ebb::cuda
