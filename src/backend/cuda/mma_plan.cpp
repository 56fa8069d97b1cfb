#include "backend/cuda/mma_plan.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace ebb::cuda {
namespace {

constexpr int64_t largest_index = (int64_t{1} << 31) - 4096;
constexpr int64_t largest_workspace = int64_t{1} << 29;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What a block of a kernel takes, in clocks of a multiprocessor. Measured on sm_90; the ratios are
// what matters.
struct Tile {
  int64_t m, n;
  bool any;           // takes operands in any order and alignment
  int64_t depth;      // of a step along k
  int64_t residents;  // blocks that share a multiprocessor
  double step;        // for each step when the multiprocessor is full
  double alone;       // a step's latency
};

constexpr Tile tensor_tiles[] = {{128, 256, false, 32, 1, 980, 980},
                                 {128, 128, false, 32, 2, 560, 1090},
                                 {64, 64, true, 32, 4, 225, 450},
                                 {128, 32, true, 32, 4, 200, 450},
                                 {32, 128, true, 32, 4, 200, 450}};
constexpr Tile simt_tiles[] = {{128, 128, false, 8, 2, 1300, 1500}, {64, 64, true, 8, 6, 400, 600}};

bool on_tensor_cores(const GemmTask& t, const CudaDevice& device) {
  if (t.a != t.b || t.a == DType::f32) return false;
  return t.a == DType::f16 || device.capability() >= 80;
}

bool pieces_fit(DType dtype, int64_t run) { return run * size_of(dtype) % 16 == 0; }

// The fast forms of kernels apply to an operand, if its address is aligned.
bool fast(DType dtype, int64_t run, K where) {
  return pieces_fit(dtype, run) || (dtype == DType::f32 && where == K::inner);
}

struct Choice {
  Tile tile;
  int64_t splits;
  double clocks;
};

double clocks(const GemmTask& t, const CudaDevice& device, const Choice& c) {
  const int64_t blocks = divide_up(t.m, c.tile.m) * divide_up(t.n, c.tile.n) * t.batch * c.splits;
  const int64_t steps = divide_up(divide_up(t.k, c.tile.depth), c.splits);
  const int64_t each = divide_up(blocks, device.multiprocessors());  // of the busiest one
  const auto round = [&](int64_t residents) {
    constexpr double start_and_end = 3000;
    const double step = std::max(c.tile.alone, static_cast<double>(residents) * c.tile.step);
    return static_cast<double>(steps) * step + start_and_end;
  };
  double total = static_cast<double>(each / c.tile.residents) * round(c.tile.residents);
  if (each % c.tile.residents > 0) total += round(each % c.tile.residents);
  if (c.splits > 1) {
    constexpr double launch = 6000, bytes_per_clock = 2000;
    const double bytes = static_cast<double>(t.out_rows * t.n) * 4;
    total += launch + 2 * static_cast<double>(c.splits) * bytes / bytes_per_clock;
  }
  return total;
}

// Parts of k that are worth trying with a tile.
bool worth_splitting(const GemmTask& t, const Tile& tile, int64_t splits) {
  constexpr int64_t fewest = 128;  // of k in a part
  return splits == 1 || (t.k >= fewest * splits && t.k >= 4 * tile.depth * splits &&
                         splits * t.out_rows * t.n * 4 <= largest_workspace);
}

std::vector<Choice> choices_of(const GemmTask& t, const CudaDevice& device) {
  const bool tensor = on_tensor_cores(t, device);
  const bool quick = fast(t.a, t.a_run, t.a_k) && fast(t.b, t.b_run, t.b_k) && t.a == t.b &&
                     (tensor || t.a == DType::f32);
  const std::span<const Tile> tiles = tensor ? std::span<const Tile>(tensor_tiles) : simt_tiles;
  std::vector<Choice> out;
  for (const Tile& tile : tiles) {
    if (!tile.any && !quick) continue;
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64}) {
      if (!worth_splitting(t, tile, splits)) continue;
      Choice c{tile, splits, 0};
      c.clocks = clocks(t, device, c);
      out.push_back(c);
    }
  }
  return out;
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
  std::vector<Choice> choices = choices_of(t, device);
  std::stable_sort(choices.begin(), choices.end(),
                   [](const Choice& x, const Choice& y) { return x.clocks < y.clocks; });
  std::vector<Tune> out;
  constexpr size_t most = 6;
  constexpr double too_slow = 2;
  for (const Choice& c : choices)
    if (out.size() < most && c.clocks <= too_slow * choices[0].clocks)
      out.push_back({{{"m", c.tile.m}, {"n", c.tile.n}, {"splits", c.splits}}});
  return out;
}

GemmPlan gemm_plan(const GemmTask& t, const Tune& tune, const CudaDevice& device) {
  const Tune best = tune.values.empty() ? gemm_space(t, device)[0] : tune;
  GemmPlan p{.tensor = on_tensor_cores(t, device),
             .m = best.value("m", 64),
             .n = best.value("n", 64),
             .splits = best.value("splits", 1)};
  if (p.splits > 1) p.workspace = p.splits * t.out_rows * t.n * 4;
  return p;
}

}  // namespace ebb::cuda
