// Tile sizes and schedules of a GEMM by a cost model, in clocks of one SM.
#include <algorithm>
#include <cmath>

#include "backend/cuda/gemm/sm90/params.h"
#include "backend/cuda/kit/tma.h"
#include "base/error.h"
#include "base/round_up.h"

namespace ebb::cuda::gemm {
namespace {

constexpr int max_cluster_size = 8;  // blocks of a cluster, on every chip

struct Guess {
  Choice choice;
  double clocks = 0;
};

int64_t steps_of(const Problem& p) {
  return ceil_div(p.k, 64) * (a_images(p.form) ? p.taps() : 1) + ceil_div(p.more_k[0], 64) +
         ceil_div(p.more_k[1], 64);
}

int ctas_per_sm(const TileSize& t, const Choice& c) { return c.one_cta_per_sm ? 1 : t.ctas_per_sm; }

// Columns of B that are loaded for one tile, in blocks of 64 (or 32).
int columns_of(const Problem& p, const TileSize& t) {
  return b_transposed(p.form) ? static_cast<int>(ceil_div(t.n, 64)) * 64 : t.n;
}

// Bytes that pass shared memory in a step: TMA writes both operands; the tensor cores
// read the first for each warpgroup along n, and the second for each 64 rows.
double shared_bytes(const Problem& p, const TileSize& t) {
  const int across_n = !t.ping_pong && t.m == 64 && t.n >= 128 ? 2 : 1;
  const double read = t.m / 64.0 * (across_n * 64 + t.n) * 128;
  return read + (t.m + columns_of(p, t)) * 128.0;
}

// Clocks of a step of 64 values of k for one tile, of `blocks` that share a SM. The
// constants are fitted to measurements on an H200.
double step_clocks(const Problem& p, const TileSize& t, const Choice& c, int64_t blocks) {
  const Multicast multicast = c.multicast;
  const int stages = c.one_cta_per_sm ? t.one_cta_stages : t.stages;
  constexpr double bytes_per_clock = 55;  // from the L2 cache
  constexpr double latency = 2080;        // of a load
  constexpr double in_step = 82;          // of waiting for the other block of a pair
  constexpr double shared_bytes_per_clock = 131;
  const double a = t.m * 128.0 * (multicast == Multicast::a ? 0.5 : 1);
  constexpr double narrow = 1.4;  // a byte of boxes of 32 columns takes so much longer
  const bool in_narrow = p.form <= Form::tt && b_transposed(p.form) && narrow_rows(t.n);
  const double b =
      (in_narrow ? narrow * t.n : columns_of(p, t)) * 128.0 * (multicast == Multicast::b ? 0.5 : 1);
  const double clocks = std::max({t.m * t.n / 32.0, (a + b) / bytes_per_clock,
                                  shared_bytes(p, t) / shared_bytes_per_clock,
                                  latency / (stages * static_cast<double>(blocks))});
  // all taps of one block of channels read the same lines of the cache
  constexpr double same_lines = 0.18;
  double slow = b_images(p.form) && p.images.c <= 64 ? 1 + same_lines * (t.n / 64.0 - 1) : 1;
  constexpr double three = 1.07, one_cta_per_sm = 1.25, summed = 1.1;  // measured
  if (t.m == 192 && !t.ping_pong) slow *= three;
  if (t.m == 256 && t.n == 64) slow *= one_cta_per_sm;  // one CTA's loads do not saturate memory
  if (p.row_sums && t.ping_pong) slow *= summed;
  return slow * clocks + (multicast == Multicast::none ? 0 : in_step);
}

// Co-resident CTAs, or clusters of two.
int64_t room_of(const TileSize& t, const Choice& c, int sm_count) {
  return int64_t{sm_count} * ctas_per_sm(t, c) / (c.multicast == Multicast::none ? 1 : 2);
}

// Co-resident clusters of `blocks`: a cluster is within one GPC, and not all sizes fill a GPC.
// Measured on an H200 with 132 SMs; 0: not worth it.
int64_t clusters_at_once(int blocks, int sm_count) {
  constexpr int measured[] = {0, 132, 66, 39, 32, 0, 0, 0, 15};
  return blocks <= max_cluster_size ? int64_t{measured[blocks]} * sm_count / 132 : 0;
}

// Split-K applies to the tiles of the partial last wave; full waves are data-parallel.
Choice with_data_parallel(const Problem& p, const TileSize& t, Choice c, int sm_count) {
  const Groups g = groups(p, c);
  const int64_t tiles = g.m * g.n * p.batch, room = room_of(t, c, sm_count);
  c.data_parallel = c.split_k > 1 && !c.cluster_split_k ? static_cast<int>(tiles / room * room) : 0;
  return c;
}

double clocks_of(const Problem& p, const TileSize& t, const Choice& c, int sm_count) {
  constexpr double start = 4500, start_of_sum = 3500, sum_bytes_per_clock = 5040;
  constexpr double store_bytes_per_clock = 18.7;
  const Groups g = groups(p, c);
  const int64_t tiles = g.m * g.n * p.batch,
                data_parallel = c.split_k > 1 ? c.data_parallel : tiles;
  const int64_t rest = tiles - data_parallel, at_once = room_of(t, c, sm_count);
  const int per = ctas_per_sm(t, c);
  const auto steps = static_cast<double>(steps_of(p));
  const auto store = [&](double bytes) { return t.m * t.n * bytes / store_bytes_per_clock; };
  // of the busiest SM
  const int64_t blocks =
      std::min<int64_t>(ceil_div(data_parallel + rest * c.split_k, at_once / per), per);
  const auto rounds = [&](int64_t work_units, double length, double bytes) {
    constexpr double hidden = 0.86, turn = 380;  // of a store that overlaps MMAs; per tile
    const auto each = static_cast<double>(ceil_div(work_units, at_once / per));
    if (p.form == Form::gated) {  // ping-pong: each consumer multiplies, then stores
      constexpr double of_sum = 0.8;
      const double products = length * step_clocks(p, t, c, blocks);
      const double gates = of_sum * t.m * t.n;
      return each * (turn + std::max(products, (products + gates) / 2)) + gates;
    }
    const double stores = t.ping_pong ? 1 + (each - 1) * (1 - hidden) : each;
    return each * (turn + length * step_clocks(p, t, c, blocks)) + stores * store(bytes);
  };
  constexpr double start_of_one_cta = 500;  // the next kernel's CTAs cannot become resident early
  double clocks = start + (c.one_cta_per_sm ? start_of_one_cta : 0);
  if (data_parallel > 0)
    clocks += rounds(data_parallel, steps, static_cast<double>(size_of(p.out)));
  if (c.cluster_split_k) {
    constexpr double join = 1900, join_bytes_per_clock = 9.3;  // of the blocks' shared memories
    const auto bytes = static_cast<double>(blocks * t.m * t.n * 4);
    clocks += rounds(rest * c.split_k, std::ceil(steps / c.split_k), 0);
    clocks += join + bytes / join_bytes_per_clock;
  } else if (rest > 0) {
    clocks += rounds(rest * c.split_k, std::ceil(steps / c.split_k), 4);
    const double bytes = static_cast<double>(rest * t.m * t.n) * (4.0 * c.split_k + 4);
    clocks += start_of_sum + bytes * (c.multicast == Multicast::none ? 1 : 2) / sum_bytes_per_clock;
  }
  return clocks;
}

// Why kernels with this tile size cannot run the schedule; empty: they can.
std::string obstacle(const Problem& p, const TileSize& t, const Choice& c) {
  if (c.split_k < 1 || c.split_k > steps_of(p))
    return str("a sum over ", steps_of(p), " blocks of k has no ", c.split_k, " splits");
  if (c.multicast != Multicast::none && c.multicast != Multicast::a && c.multicast != Multicast::b)
    return "pairs of blocks multicast the first operand or the second";
  if (p.post == Post::activation_grad && !t.loads_source)
    return "these tiles have no activation-gradient epilogue";
  if (p.form == Form::gated && c.split_k > 1) return "partial sums have no gates";
  if (p.form == Form::phases && c.split_k > 1) return "partial sums have no phases";
  if (p.scale_rows > 0 && c.split_k > 1) return "partial sums are not scaled";
  if (p.scale_rows > 0 && (!t.scales || p.scale_rows % t.m != 0))
    return "these tiles take no rows of factors";
  if (p.residual && p.residual_rows == 1 && !t.loads_source) return "these tiles take no residual";
  if (p.residual && p.residual_rows > 1 && !t.adds_row_residual)
    return "these tiles take no rows of residuals";
  if (c.one_cta_per_sm && t.ctas_per_sm == 1) return "blocks of these tiles are alone anyway";
  if (!c.cluster_split_k) return {};
  if (!t.can_cluster_split_k) return "the partials do not fit into shared memory";
  if (c.split_k < 2 || c.split_k > max_cluster_size)
    return str("a cluster reduces 2 to ", max_cluster_size, " splits");
  if (c.multicast != Multicast::none) return "cluster split-K multicasts no operand";
  return {};
}

// Split-K factors to consider.
std::vector<int> split_k_worth(const Problem& p) {
  std::vector<int> split_k{1};
  constexpr int64_t shortest = 4, most = 132;
  for (int64_t s = 2; s <= std::min(steps_of(p) / shortest, most); s += s < 16 ? 1 : s / 16)
    split_k.push_back(static_cast<int>(s));
  return split_k;
}

// Multicast and split-K candidates for one tile size.
std::vector<Choice> choices_worth(const Problem& p, const TileSize& t, int sm_count) {
  std::vector<Choice> all;
  // the epilogue of so many activations outlasts the other warpgroup's MMAs
  if ((p.post == Post::activate || p.post == Post::activation_grad) && t.ping_pong && t.n > 128)
    return all;
  const auto add = [&](Choice c) {
    if (obstacle(p, t, c).empty()) all.push_back(c);
    c.one_cta_per_sm = true;
    const Groups g = groups(p, c);
    const int64_t work_units = g.m * g.n * p.batch * (c.cluster_split_k ? 1 : c.split_k);
    const int64_t room = c.cluster_split_k ? clusters_at_once(c.split_k, sm_count) * 3 /
                                                 4  // no waiting for the last
                                           : room_of(t, c, sm_count);
    if (work_units <= room && steps_of(p) / c.split_k >= t.stages && obstacle(p, t, c).empty())
      all.push_back(c);
  };
  for (const int split_k : split_k_worth(p)) {
    Choice c{.tile_m = t.m,
             .tile_n = t.n,
             .split_k = split_k,
             .ping_pong = t.ping_pong,
             .cluster_split_k = true};
    const Groups g = groups(p, c);
    const int64_t clusters = clusters_at_once(split_k, sm_count) * t.ctas_per_sm;
    if (g.m * g.n * p.batch <= clusters) add(c);
    c.cluster_split_k = false;
    for (const Multicast multicast : {Multicast::none, Multicast::b, Multicast::a}) {
      c.multicast = multicast;
      add(c);
    }
  }
  return all;
}

}  // namespace

std::vector<Choice> choices(const Problem& p, const std::vector<TileSize>& tiles, int sm_count) {
  std::vector<Guess> guesses;
  for (const TileSize& t : tiles)
    for (const Choice& cut : choices_worth(p, t, sm_count)) {
      const Choice c = with_data_parallel(p, t, cut, sm_count);
      // of split-K partials; row sums may need as much for very large results
      constexpr int64_t largest_workspace = int64_t{1} << 28;
      if (c.split_k > 1 && workspace_bytes(p, c) > largest_workspace) continue;
      guesses.push_back({c, clocks_of(p, t, c, sm_count)});
    }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& x, const Guess& y) { return x.clocks < y.clocks; });
  // the best split-K factors for each tile and multicast mode
  constexpr size_t most = 24;  // the choices of all presets are among them
  std::vector<Choice> best;
  for (const Guess& g : guesses) {
    const auto same = [&](const Choice& c) {
      return c.tile_m == g.choice.tile_m && c.tile_n == g.choice.tile_n &&
             c.multicast == g.choice.multicast && c.ping_pong == g.choice.ping_pong &&
             c.cluster_split_k == g.choice.cluster_split_k &&
             c.one_cta_per_sm == g.choice.one_cta_per_sm;
    };
    if (best.size() < most && std::count_if(best.begin(), best.end(), same) < 2)
      best.push_back(g.choice);
  }
  return best;
}

bool supports(const Problem& p, const CudaDevice& device) {
  constexpr int hopper = 90;  // sm_90a code runs on nothing else
  return device.capability() == hopper && can_load(p) && can_finish(p);
}

std::vector<Tune> tunes(const Problem& p, const Kernels& k, const CudaDevice& device) {
  std::vector<Tune> all;
  for (const Choice& c : choices(p, k.tiles, device.sm_count())) {
    Tune t{{{"tile_m", c.tile_m},
            {"tile_n", c.tile_n},
            {"split_k", c.split_k},
            {"multicast", static_cast<int64_t>(c.multicast)}}};
    if (c.ping_pong) t.values.emplace_back("ping_pong", 1);
    if (c.cluster_split_k) t.values.emplace_back("cluster_split_k", 1);
    if (c.one_cta_per_sm) t.values.emplace_back("one_cta_per_sm", 1);
    all.push_back(t);
  }
  return all;
}

Choice choice_of(const Problem& p, const std::vector<TileSize>& tiles, const Tune& tune,
                 int sm_count) {
  const std::vector<Choice> all = choices(p, tiles, sm_count);
  require(!all.empty(), "gemm: no tiles for a product of ", p.m, "x", p.n, "x", p.k);
  const Choice guess = all.front();
  Choice c;
  c.tile_m = static_cast<int>(tune.value("tile_m", guess.tile_m));
  c.tile_n = static_cast<int>(tune.value("tile_n", guess.tile_n));
  c.split_k = static_cast<int>(tune.value("split_k", guess.split_k));
  c.multicast =
      static_cast<Multicast>(tune.value("multicast", static_cast<int64_t>(guess.multicast)));
  const bool guessed = tune.values.empty();
  c.ping_pong = tune.value("ping_pong", guessed && guess.ping_pong ? 1 : 0) != 0;
  c.cluster_split_k = tune.value("cluster_split_k", guessed && guess.cluster_split_k ? 1 : 0) != 0;
  c.one_cta_per_sm = tune.value("one_cta_per_sm", guessed && guess.one_cta_per_sm ? 1 : 0) != 0;
  const auto t = std::find_if(tiles.begin(), tiles.end(), [&](const TileSize& x) {
    return x.m == c.tile_m && x.n == c.tile_n && x.ping_pong == c.ping_pong;
  });
  require(t != tiles.end(), "gemm: no kernel for tiles of ", c.tile_m, "x", c.tile_n,
          c.ping_pong ? " with ping-pong" : "");
  const std::string why = obstacle(p, *t, c);
  require(why.empty(), "gemm: ", why, "  tiles of ", c.tile_m, "x", c.tile_n);
  return with_data_parallel(p, *t, c, sm_count);
}

Prepared prepare(const Problem& p, const Kernels& k, const Tune& tune, CudaDevice& device) {
  const Choice c = choice_of(p, k.tiles, tune, device.sm_count());
  const auto run = [p, c, start = k.run, &device](const Operands& o) { start(p, c, o, device); };
  return {.workspace = workspace_bytes(p, c), .run = run};
}

}  // namespace ebb::cuda::gemm
