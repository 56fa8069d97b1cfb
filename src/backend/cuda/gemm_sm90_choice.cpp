// How to cut a product into tiles: a small model of the time, in clocks of one multiprocessor.
#include <algorithm>
#include <cmath>

#include "backend/cuda/gemm_sm90.h"
#include "backend/cuda/tma.h"
#include "base/error.h"

namespace ebb::cuda::gemm {
namespace {

int64_t cover(int64_t count, int64_t by) { return (count + by - 1) / by; }

struct Guess {
  Choice choice;
  double clocks = 0;
};

// Columns of the matrix that tiles cover: wgrad pads each tap to blocks of 64 channels.
int64_t columns_of(const Problem& p) {
  return p.form == Form::wgrad ? p.taps() * cover(p.images.c, 64) * 64 : p.n;
}

int64_t steps_of(const Problem& p) { return cover(p.k, 64) * (a_images(p.form) ? p.taps() : 1); }

// Clocks of a step of 64 values of k for one tile, of `blocks` that share a multiprocessor. The
// constants are fitted to measurements on an H200.
double step_clocks(const Problem& p, const TileSize& t, Share share, int64_t blocks) {
  constexpr double bytes_per_clock = 46;  // from the L2 cache
  constexpr double latency = 1500;        // of a load
  constexpr double in_step = 150;         // of waiting for the other block of a pair
  const int columns = b_transposed(p.form) ? (t.n + 63) / 64 * 64 : t.n;
  const double a = t.m * 128.0 * (share == Share::a ? 0.5 : 1);
  const double b = columns * 128.0 * (share == Share::b ? 0.5 : 1);
  const double clocks = std::max({t.m * t.n / 32.0 / 0.93, (a + b) / bytes_per_clock,
                                  latency / (t.stages * static_cast<double>(blocks))});
  // all taps of one block of channels read the same lines of the cache
  const double crowded = b_images(p.form) && p.images.c <= 64 ? 1 + 0.1 * (t.n / 64.0 - 1) : 1;
  return crowded * clocks + (share == Share::none ? 0 : in_step);
}

double clocks_of(const Problem& p, const TileSize& t, const Choice& c, int multiprocessors) {
  constexpr double start = 6000, start_of_sum = 2500, bytes_per_clock = 2200;  // of memory
  constexpr double store_bytes_per_clock = 30, store_latency = 1200;
  const int pair = c.share == Share::none ? 1 : 2;
  int64_t tiles_m = cover(p.m, t.m), tiles_n = cover(columns_of(p), t.n);
  if (c.share == Share::b) tiles_m = cover(tiles_m, 2) * 2;
  if (c.share == Share::a) tiles_n = cover(tiles_n, 2) * 2;
  const int64_t units = tiles_m * tiles_n * p.batch * c.splits;
  const double steps = std::ceil(static_cast<double>(steps_of(p)) / c.splits);
  const double out_bytes = c.splits > 1 || p.out == DType::f32 ? 4 : 2;
  const double store = store_latency + t.m * t.n * out_bytes / store_bytes_per_clock;
  // of the busiest multiprocessor
  const int64_t each = cover(units, multiprocessors / pair * pair);
  const int64_t blocks = std::min<int64_t>(each, t.per_multiprocessor);
  double clocks =
      start + static_cast<double>(each) * (steps * step_clocks(p, t, c.share, blocks) + store);
  if (c.splits > 1) {
    const double bytes = static_cast<double>(p.batch * p.m * p.n) * (4.0 * c.splits + 4);
    clocks += start_of_sum + bytes / bytes_per_clock;
  }
  return clocks;
}

// Parts of k that fill the multiprocessors with whole rounds of units.
std::vector<int> splits_worth(const Problem& p, const TileSize& t, int multiprocessors) {
  std::vector<int> splits{1};
  const int64_t tiles = cover(p.m, t.m) * cover(columns_of(p), t.n) * p.batch;
  const int64_t room = int64_t{multiprocessors} * t.per_multiprocessor;
  constexpr int64_t shortest = 4;  // steps
  for (int64_t waves = 1; waves <= 6; ++waves) {
    const int64_t s = std::min(waves * room / tiles, steps_of(p) / shortest);
    if (s > splits.back()) splits.push_back(static_cast<int>(s));
  }
  return splits;
}

}  // namespace

std::vector<Choice> choices(const Problem& p, const std::vector<TileSize>& tiles,
                            int multiprocessors) {
  std::vector<Guess> guesses;
  for (const TileSize& t : tiles)
    for (const int splits : splits_worth(p, t, multiprocessors))
      for (const Share share : {Share::none, Share::b, Share::a}) {
        const Choice c{t.m, t.n, splits, share};
        guesses.push_back({c, clocks_of(p, t, c, multiprocessors)});
      }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& x, const Guess& y) { return x.clocks < y.clocks; });
  constexpr size_t most = 12;
  if (guesses.size() > most) guesses.resize(most);
  std::vector<Choice> best;
  for (const Guess& g : guesses) best.push_back(g.choice);
  return best;
}

bool supports(const Problem& p, const CudaDevice& device) {
  constexpr int hopper = 90;  // sm_90a code runs on nothing else
  return device.capability() == hopper && can_load(p);
}

std::vector<Tune> tunes(const Problem& p, const Kernels& k, const CudaDevice& device) {
  std::vector<Tune> all;
  for (const Choice& c : choices(p, k.tiles, device.multiprocessors()))
    all.push_back({{{"tile_m", c.tile_m},
                    {"tile_n", c.tile_n},
                    {"splits", c.splits},
                    {"share", static_cast<int64_t>(c.share)}}});
  return all;
}

bool Prepared::takes(const Operands& o) {
  constexpr uintptr_t piece = 16;
  return aligned(o.a, piece) && aligned(o.b, piece);
}

Program general_program(const std::vector<Kernel>& all, const Signature& s, Device& device) {
  const auto it = std::find_if(all.rbegin(), all.rend(),
                               [&](const Kernel& k) { return k.supports(s, device); });
  require(it != all.rend(), "gemm: no general kernel  ", s.text());
  return it->prepare(s, {}, device);
}

Prepared prepare(const Problem& p, const Kernels& k, const Tune& tune, CudaDevice& device) {
  const Choice guess = choices(p, k.tiles, device.multiprocessors()).front();
  Choice c;
  c.tile_m = static_cast<int>(tune.value("tile_m", guess.tile_m));
  c.tile_n = static_cast<int>(tune.value("tile_n", guess.tile_n));
  c.splits = static_cast<int>(tune.value("splits", guess.splits));
  c.share = static_cast<Share>(tune.value("share", static_cast<int64_t>(guess.share)));
  const auto run = [p, c, start = k.run, &device](const Operands& o) { start(p, c, o, device); };
  return {.workspace = workspace_bytes(p, c), .run = run};
}

}  // namespace ebb::cuda::gemm
