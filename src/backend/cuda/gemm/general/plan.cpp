#include "backend/cuda/gemm/general/plan.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/round_up.h"

namespace ebb::cuda {
namespace {

constexpr int64_t largest_index = (int64_t{1} << 31) - 4096;
constexpr int64_t largest_workspace = int64_t{1} << 29;

// What a block of a kernel takes, in clocks of a SM. Measured on sm_90; the ratios are
// what matters.
struct Tile {
  int64_t m, n;
  int64_t depth;      // of a step along k
  int64_t residents;  // blocks that share a SM
  double step;        // for each step when the SM is full
  double alone;       // a step's latency
};

constexpr int64_t huge_shared = 147456;  // bytes that the first needs
constexpr Tile tensor_tiles[] = {
    {256, 128, 64, 1, 2150, 2150}, {128, 128, 32, 2, 560, 1090}, {64, 64, 32, 4, 225, 450}};
constexpr Tile narrow_tensor_tiles[] = {{128, 32, 32, 4, 250, 500}};
// For operands that are gathered element by element.
constexpr Tile any_tensor_tiles[] = {{64, 64, 32, 4, 650, 2600}};
constexpr Tile any_narrow_tensor_tiles[] = {
    {64, 64, 32, 4, 650, 2600}, {128, 32, 32, 4, 550, 2600}, {32, 128, 32, 4, 550, 2600}};
constexpr Tile simt_tiles[] = {{128, 128, 8, 2, 1300, 1500}, {64, 64, 8, 6, 400, 600}};
constexpr Tile any_simt_tiles[] = {{64, 64, 8, 6, 600, 1200}};

bool on_tensor_cores(const GemmTask& t, const CudaDevice& device) {
  if (t.a != t.b || t.a == DType::f32) return false;
  return t.a == DType::f16 || device.capability() >= 80;
}

// The fast forms of kernels apply to an operand.
bool fast(const GemmTask& t, DType dtype, int64_t run, K where) {
  return t.vectors(dtype, run) || (dtype == DType::f32 && where == K::inner);
}

struct Choice {
  Tile tile;
  int64_t splits;
  double clocks;
};

double clocks(const GemmTask& t, const CudaDevice& device, const Choice& c) {
  const int64_t blocks = ceil_div(t.m, c.tile.m) * ceil_div(t.n, c.tile.n) * t.batch * c.splits;
  const int64_t steps = ceil_div(ceil_div(t.k, c.tile.depth), c.splits);
  const int64_t each = ceil_div(blocks, device.sm_count());  // of the busiest one
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

std::vector<Tile> tiles_of(const GemmTask& t, const CudaDevice& device) {
  const bool tensor = on_tensor_cores(t, device);
  const bool quick = fast(t, t.a, t.a_run, t.a_k) && fast(t, t.b, t.b_run, t.b_k) && t.a == t.b &&
                     (tensor || t.a == DType::f32);
  std::vector<Tile> out;
  const auto add = [&](std::span<const Tile> tiles) {
    for (const Tile& tile : tiles)
      if (tile.m < 256 || device.shared_per_block() >= huge_shared) out.push_back(tile);
  };
  if (!tensor) {
    add(quick ? std::span<const Tile>(simt_tiles) : any_simt_tiles);
  } else if (quick) {
    add(tensor_tiles);
    if (t.narrow == Narrow::columns) add(narrow_tensor_tiles);
  } else {
    add(t.narrow == Narrow::both ? std::span<const Tile>(any_narrow_tensor_tiles)
                                 : any_tensor_tiles);
  }
  return out;
}

// Split-K factors worth trying with a tile.
bool worth_splitting(const GemmTask& t, const Tile& tile, int64_t splits) {
  constexpr int64_t fewest = 128, many = 64, few_elements = 1 << 16;
  if (splits == 1) return true;
  const int64_t elements = t.out_rows * t.n;
  if (splits > many && elements > few_elements) return false;
  return t.k >= fewest * splits && t.k >= 4 * tile.depth * splits &&
         splits * elements * 4 <= largest_workspace;
}

std::vector<Choice> choices_of(const GemmTask& t, const CudaDevice& device) {
  std::vector<Choice> out;
  for (const Tile& tile : tiles_of(t, device))
    for (const int64_t splits : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256}) {
      if (!worth_splitting(t, tile, splits)) continue;
      Choice c{tile, splits, 0};
      c.clocks = clocks(t, device, c);
      out.push_back(c);
    }
  return out;
}

}  // namespace

bool gemm_supports(const GemmTask& t) {
  const int64_t tiles = ceil_div(t.m, 64) * ceil_div(t.n, 64);
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
      out.push_back({{{"m", c.tile.m}, {"n", c.tile.n}, {"split_k", c.splits}}});
  return out;
}

GemmPlan gemm_plan(const GemmTask& t, const Tune& tune, const CudaDevice& device) {
  const Tune best = tune.values.empty() ? gemm_space(t, device)[0] : tune;
  GemmPlan p{.tensor = on_tensor_cores(t, device), .splits = best.value("split_k", 1)};
  // a choice of uses alike may name a tile that this one has no kernel for
  for (const Tile& tile : tiles_of(t, device)) {
    if (tile.m != best.value("m", 0) || tile.n != best.value("n", 0)) continue;
    p.m = tile.m;
    p.n = tile.n;
  }
  if (p.splits > 1) p.workspace = p.splits * t.out_rows * t.n * 4;
  return p;
}

}  // namespace ebb::cuda
