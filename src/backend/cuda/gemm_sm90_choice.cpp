// How to cut a product into tiles: a small model of the time, in clocks of one multiprocessor.
#include <algorithm>
#include <cmath>

#include "backend/cuda/cut.h"
#include "backend/cuda/gemm_sm90.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/tma.h"
#include "base/error.h"

namespace ebb::cuda::gemm {
namespace {

constexpr int most_together = 8;  // blocks of a cluster, on every chip

struct Guess {
  Choice choice;
  double clocks = 0;
};

int64_t steps_of(const Problem& p) { return ceil_div(p.k, 64) * (a_images(p.form) ? p.taps() : 1); }

int per_multiprocessor(const TileSize& t, const Choice& c) {
  return c.lone ? 1 : t.per_multiprocessor;
}

// Columns of B that are loaded for one tile, in blocks of 64 (or 32, which take as long).
int columns_of(const Problem& p, const TileSize& t) {
  return b_transposed(p.form) ? static_cast<int>(ceil_div(t.n, 64)) * 64 : t.n;
}

// Bytes that pass shared memory in a step: the copy engine writes both operands; the matrix units
// read the first for each warpgroup along n, and the second for each 64 rows.
double shared_bytes(const Problem& p, const TileSize& t) {
  const int across_n = t.teams == 1 && t.m == 64 && t.n >= 128 ? 2 : 1;
  const double read = t.m / 64.0 * (across_n * 64 + t.n) * 128;
  return read + (t.m + columns_of(p, t)) * 128.0;
}

// Clocks of a step of 64 values of k for one tile, of `blocks` that share a multiprocessor. The
// constants are fitted to measurements on an H200.
double step_clocks(const Problem& p, const TileSize& t, const Choice& c, int64_t blocks) {
  const Share share = c.share;
  const int stages = c.lone ? t.lone_stages : t.stages;
  constexpr double bytes_per_clock = 55;  // from the L2 cache
  constexpr double latency = 2080;        // of a load
  constexpr double in_step = 82;          // of waiting for the other block of a pair
  constexpr double shared_bytes_per_clock = 131;
  const double a = t.m * 128.0 * (share == Share::a ? 0.5 : 1);
  const double b = columns_of(p, t) * 128.0 * (share == Share::b ? 0.5 : 1);
  const double clocks = std::max({t.m * t.n / 32.0, (a + b) / bytes_per_clock,
                                  shared_bytes(p, t) / shared_bytes_per_clock,
                                  latency / (stages * static_cast<double>(blocks))});
  // all taps of one block of channels read the same lines of the cache
  constexpr double same_lines = 0.18;
  double slow = b_images(p.form) && p.images.c <= 64 ? 1 + same_lines * (t.n / 64.0 - 1) : 1;
  constexpr double three = 1.07, lone = 1.25, summed = 1.1, narrow = 1.2;  // measured
  if (t.m == 192 && t.teams == 1) slow *= three;
  if (t.m == 256 && t.n == 64) slow *= lone;  // one block's loads do not fill the way
  if (p.row_sums && t.teams > 1) slow *= summed;
  if (p.form <= Form::tt && b_transposed(p.form) && t.n % 64 != 0) slow *= narrow;
  return slow * clocks + (share == Share::none ? 0 : in_step);
}

// Blocks, or pairs of them, that run at once.
int64_t room_of(const TileSize& t, const Choice& c, int multiprocessors) {
  return int64_t{multiprocessors} * per_multiprocessor(t, c) / (c.share == Share::none ? 1 : 2);
}

// Clusters of `blocks` that run at once: those of one lie in one part of the chip, and not all
// sizes fill these parts. As an H200 of 132 multiprocessors told; 0: not worth it.
int64_t clusters_at_once(int blocks, int multiprocessors) {
  constexpr int measured[] = {0, 132, 66, 39, 32, 0, 0, 0, 15};
  return blocks <= most_together ? int64_t{measured[blocks]} * multiprocessors / 132 : 0;
}

// Splits the tiles after the last full round of blocks.
Choice with_whole(const Problem& p, const TileSize& t, Choice c, int multiprocessors) {
  const Groups g = groups(p, c);
  const int64_t tiles = g.m * g.n * p.batch, room = room_of(t, c, multiprocessors);
  c.whole = c.splits > 1 && !c.together ? static_cast<int>(tiles / room * room) : 0;
  return c;
}

double clocks_of(const Problem& p, const TileSize& t, const Choice& c, int multiprocessors) {
  constexpr double start = 4500, start_of_sum = 3500, sum_bytes_per_clock = 5040;
  constexpr double store_bytes_per_clock = 18.7;
  const Groups g = groups(p, c);
  const int64_t tiles = g.m * g.n * p.batch, whole = c.splits > 1 ? c.whole : tiles;
  const int64_t rest = tiles - whole, at_once = room_of(t, c, multiprocessors);
  const int per = per_multiprocessor(t, c);
  const auto steps = static_cast<double>(steps_of(p));
  const auto store = [&](double bytes) { return t.m * t.n * bytes / store_bytes_per_clock; };
  // of the busiest multiprocessor
  const int64_t blocks = std::min<int64_t>(ceil_div(whole + rest * c.splits, at_once / per), per);
  const auto rounds = [&](int64_t units, double length, double bytes) {
    constexpr double hidden = 0.86, turn = 380;  // of a store beside products; of a tile
    const auto each = static_cast<double>(ceil_div(units, at_once / per));
    if (p.form == Form::gated) {  // by two teams, each of which multiplies, then stores
      constexpr double of_sum = 0.8;
      const double products = length * step_clocks(p, t, c, blocks);
      const double gates = of_sum * t.m * t.n;
      return each * (turn + std::max(products, (products + gates) / 2)) + gates;
    }
    const double stores = t.teams > 1 ? 1 + (each - 1) * (1 - hidden) : each;
    return each * (turn + length * step_clocks(p, t, c, blocks)) + stores * store(bytes);
  };
  constexpr double start_of_lone = 500;  // the next kernel finds no room to start early
  double clocks = start + (c.lone ? start_of_lone : 0);
  if (whole > 0) clocks += rounds(whole, steps, static_cast<double>(size_of(p.out)));
  if (c.together) {
    constexpr double join = 1900, join_bytes_per_clock = 9.3;  // of the blocks' shared memories
    const auto bytes = static_cast<double>(blocks * t.m * t.n * 4);
    clocks += rounds(rest * c.splits, std::ceil(steps / c.splits), 0);
    clocks += join + bytes / join_bytes_per_clock;
  } else if (rest > 0) {
    clocks += rounds(rest * c.splits, std::ceil(steps / c.splits), 4);
    const double bytes = static_cast<double>(rest * t.m * t.n) * (4.0 * c.splits + 4);
    clocks += start_of_sum + bytes * (c.share == Share::none ? 1 : 2) / sum_bytes_per_clock;
  }
  return clocks;
}

// What keeps kernels with tiles of this size from computing it that way; empty: nothing.
std::string obstacle(const Problem& p, const TileSize& t, const Choice& c) {
  if (c.splits < 1 || c.splits > steps_of(p))
    return str("a sum over ", steps_of(p), " blocks of k has no ", c.splits, " parts");
  if (c.share != Share::none && c.share != Share::a && c.share != Share::b)
    return "pairs of blocks share the first operand or the second";
  if (p.post == Post::slope && !t.takes_boxes) return "these tiles take no slopes";
  if (p.form == Form::gated && c.splits > 1) return "parts of a sum are no gates";
  if (p.addend && p.addend_rows == 1 && !t.takes_boxes) return "these tiles take no addend";
  if (p.addend && p.addend_rows > 1 && !t.adds_rows) return "these tiles take no rows of addends";
  if (c.lone && t.per_multiprocessor == 1) return "blocks of these tiles are alone anyway";
  if (!c.together) return {};
  if (!t.joins) return "their parts do not fit beside each other";
  if (c.splits < 2 || c.splits > most_together)
    return str("a cluster adds up 2 to ", most_together, " parts");
  if (c.share != Share::none) return "parts of a cluster share no operand";
  return {};
}

// Numbers of parts worth a look.
std::vector<int> splits_worth(const Problem& p) {
  std::vector<int> splits{1};
  constexpr int64_t shortest = 4, most = 132;
  for (int64_t s = 2; s <= std::min(steps_of(p) / shortest, most); s += s < 16 ? 1 : s / 16)
    splits.push_back(static_cast<int>(s));
  return splits;
}

// Ways to share and to split tiles of one size.
std::vector<Choice> cuts_worth(const Problem& p, const TileSize& t, int multiprocessors) {
  std::vector<Choice> all;
  // a warpgroup takes longer for so many activations than the other for its products
  if ((p.post == Post::activate || p.post == Post::slope) && t.teams > 1 && t.n > 128) return all;
  const auto add = [&](Choice c) {
    if (obstacle(p, t, c).empty()) all.push_back(c);
    c.lone = true;
    const Groups g = groups(p, c);
    const int64_t units = g.m * g.n * p.batch * (c.together ? 1 : c.splits);
    const int64_t room =
        c.together ? clusters_at_once(c.splits, multiprocessors) * 3 / 4  // no waiting for the last
                   : room_of(t, c, multiprocessors);
    if (units <= room && steps_of(p) / c.splits >= t.stages && obstacle(p, t, c).empty())
      all.push_back(c);
  };
  for (const int splits : splits_worth(p)) {
    Choice c{.tile_m = t.m, .tile_n = t.n, .splits = splits, .teams = t.teams, .together = true};
    const Groups g = groups(p, c);
    const int64_t clusters = clusters_at_once(splits, multiprocessors) * t.per_multiprocessor;
    if (g.m * g.n * p.batch <= clusters) add(c);
    c.together = false;
    for (const Share share : {Share::none, Share::b, Share::a}) {
      c.share = share;
      add(c);
    }
  }
  return all;
}

}  // namespace

std::vector<Choice> choices(const Problem& p, const std::vector<TileSize>& tiles,
                            int multiprocessors) {
  std::vector<Guess> guesses;
  for (const TileSize& t : tiles)
    for (const Choice& cut : cuts_worth(p, t, multiprocessors)) {
      const Choice c = with_whole(p, t, cut, multiprocessors);
      // of parts of k; sums of rows may need as much beside very large results
      constexpr int64_t largest_workspace = int64_t{1} << 28;
      if (c.splits > 1 && workspace_bytes(p, c) > largest_workspace) continue;
      guesses.push_back({c, clocks_of(p, t, c, multiprocessors)});
    }
  std::stable_sort(guesses.begin(), guesses.end(),
                   [](const Guess& x, const Guess& y) { return x.clocks < y.clocks; });
  // the best number of parts of each tile and way of sharing
  constexpr size_t most = 16;
  std::vector<Choice> best;
  for (const Guess& g : guesses) {
    const auto same = [&](const Choice& c) {
      return c.tile_m == g.choice.tile_m && c.tile_n == g.choice.tile_n &&
             c.share == g.choice.share && c.teams == g.choice.teams &&
             c.together == g.choice.together && c.lone == g.choice.lone;
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
  for (const Choice& c : choices(p, k.tiles, device.multiprocessors())) {
    Tune t{{{"tile_m", c.tile_m},
            {"tile_n", c.tile_n},
            {"splits", c.splits},
            {"share", static_cast<int64_t>(c.share)}}};
    if (c.teams > 1) t.values.emplace_back("teams", c.teams);
    if (c.together) t.values.emplace_back("together", 1);
    if (c.lone) t.values.emplace_back("lone", 1);
    all.push_back(t);
  }
  return all;
}

bool Prepared::takes(const Operands& o) const {
  constexpr uintptr_t piece = 16;
  const bool result = !whole_pieces || is_aligned(o.out, piece);
  return is_aligned(o.a, piece) && is_aligned(o.b, piece) && is_aligned(o.addend, piece) &&
         is_aligned(o.slope_at, piece) && is_aligned(o.kept, piece) && result;
}

Program general_program(const std::vector<Kernel>& all, const Signature& s, Device& device) {
  const auto it = std::find_if(all.rbegin(), all.rend(),
                               [&](const Kernel& k) { return k.supports(s, device); });
  require(it != all.rend(), "gemm: no general kernel  ", s.text());
  return it->prepare(s, {}, device);
}

Choice choice_of(const Problem& p, const std::vector<TileSize>& tiles, const Tune& tune,
                 int multiprocessors) {
  const std::vector<Choice> all = choices(p, tiles, multiprocessors);
  require(!all.empty(), "gemm: no tiles for a product of ", p.m, "x", p.n, "x", p.k);
  const Choice guess = all.front();
  Choice c;
  c.tile_m = static_cast<int>(tune.value("tile_m", guess.tile_m));
  c.tile_n = static_cast<int>(tune.value("tile_n", guess.tile_n));
  c.splits = static_cast<int>(tune.value("splits", guess.splits));
  c.share = static_cast<Share>(tune.value("share", static_cast<int64_t>(guess.share)));
  const bool guessed = tune.values.empty();
  c.teams = static_cast<int>(tune.value("teams", guessed ? guess.teams : 1));
  c.together = tune.value("together", guessed && guess.together ? 1 : 0) != 0;
  c.lone = tune.value("lone", guessed && guess.lone ? 1 : 0) != 0;
  const auto t = std::find_if(tiles.begin(), tiles.end(), [&](const TileSize& x) {
    return x.m == c.tile_m && x.n == c.tile_n && x.teams == c.teams;
  });
  require(t != tiles.end(), "gemm: no kernel for tiles of ", c.tile_m, "x", c.tile_n, " by ",
          c.teams, " teams");
  const std::string why = obstacle(p, *t, c);
  require(why.empty(), "gemm: ", why, "  tiles of ", c.tile_m, "x", c.tile_n);
  return with_whole(p, *t, c, multiprocessors);
}

Prepared prepare(const Problem& p, const Kernels& k, const Tune& tune, CudaDevice& device) {
  const Choice c = choice_of(p, k.tiles, tune, device.multiprocessors());
  const auto run = [p, c, start = k.run, &device](const Operands& o) { start(p, c, o, device); };
  return {.workspace = workspace_bytes(p, c),
          .run = run,
          .whole_pieces = p.addend || p.post != Post::add};
}

}  // namespace ebb::cuda::gemm
