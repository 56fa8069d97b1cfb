// Partitioning of images among thread blocks, and the choice of inputs kept in shared memory.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>

#include "codegen/loops/pixel_kernel.h"
#include "codegen/loops/work_split.h"

namespace ebb::codegen {
namespace {

constexpr int64_t float_bytes = 4, barrier_bytes = 8;

int64_t rounded(int64_t bytes) { return ceil_div(bytes, 16) * 16; }

// Is an input read more than once?
bool stays(const PixelForm& f, const PixelWork& w, size_t input) {
  int n = 0;
  for (int p = 0; p <= w.last; ++p) n += w.used_in(p)[input] ? 1 : 0;
  return f.in[input].streams && is_float(f.in[input].dtype) && n > 1;
}

class Chooser {
 public:
  Chooser(const PixelForm& f, const Target& target)
      : f_(f),
        w_(partition(f)),
        target_(target),
        vector_(f.unaligned ? 1 : widest_vector()),
        registers_(registers()),
        instructions_(instructions()) {
    for (size_t i = 0; i < f.in.size(); ++i) resident_.push_back(stays(f, w_, i));
  }

  std::vector<PixelLayout> run() {
    consider_all();
    std::stable_sort(ways_.begin(), ways_.end(),
                     [](const Way& a, const Way& b) { return a.cost < b.cost; });
    std::vector<PixelLayout> out;
    for (const Way& w : ways_) out.push_back(w.layout);
    return out;
  }

  // Only that layout, if it fits.
  std::optional<PixelLayout> only(int64_t tile, int64_t cluster, int64_t threads) {
    const auto there = candidates();
    if (std::ranges::find(there, Candidate{tile, cluster, threads}) == there.end()) return {};
    consider(tile, static_cast<int>(cluster), static_cast<int>(threads));
    return ways_.empty() ? std::nullopt : std::optional(ways_[0].layout);
  }

  // Whether there is a layout; with no more queries of the device than that takes.
  bool any() {
    one_is_enough_ = true;
    consider_all();
    return !ways_.empty();
  }

 private:
  static constexpr int64_t widest_tile = 256;
  struct Way {
    PixelLayout layout;
    double cost;
  };

  struct Candidate {
    int64_t tile, cluster, threads;
    bool operator==(const Candidate&) const = default;
  };

  std::vector<Candidate> candidates() const {
    std::vector<Candidate> out;
    const int64_t least = std::lcm<int64_t>(f_.group(), vector_);
    for (int64_t tile = least; tile <= widest_tile; tile += least) {
      if (f_.channels % tile != 0) continue;
      for (int cluster = 1; cluster <= widest_cluster(); ++cluster)
        for (const int threads : {256, 512}) out.push_back({tile, cluster, threads});
    }
    return out;
  }

  void consider_all() {
    for (const Candidate& c : candidates())
      consider(c.tile, static_cast<int>(c.cluster), static_cast<int>(c.threads));
  }

  int widest_cluster() const { return target_.cluster ? 16 : 1; }

  // Co-resident clusters of a layout; without the device's function, what every chip with clusters
  // can run.
  int64_t max_clusters(int cluster, int64_t blocks) {
    if (cluster == 1) return target_.sm_count * blocks;
    if (!target_.max_clusters) return cluster > 8 ? 0 : target_.sm_count * blocks / cluster;
    const auto [at, isnew] = max_clusters_.try_emplace({cluster, blocks}, 0);
    if (isnew) at->second = target_.max_clusters(cluster, blocks);
    return at->second;
  }

  // 16 bytes of the widest resident input.
  int widest_vector() const {
    int64_t widest = 0;
    for (size_t i = 0; i < f_.in.size(); ++i)
      if (stays(f_, w_, i)) widest = std::max(widest, size_of(f_.in[i].dtype));
    constexpr int64_t bytes = 16;
    const int64_t wanted = bytes / std::clamp<int64_t>(widest, 2, bytes);
    int64_t vector = std::gcd(wanted, f_.channels);
    for (const int64_t w : f_.segments.widths) vector = std::gcd(vector, w);
    return static_cast<int>(vector);
  }

  // Estimated registers per thread.
  int registers() const {
    const int steps = PixelLayout().steps;
    int most = 0;
    for (int p = 0; p <= w_.last; ++p) {
      const std::vector<bool> used = w_.used_in(p);
      int n = 0;
      for (size_t i = 0; i < used.size(); ++i) {
        if (!used[i]) continue;
        const bool carried = i >= f_.in.size();
        const int64_t bytes = carried ? float_bytes : size_of(f_.in[i].dtype) * steps;
        n += static_cast<int>(ceil_div(vector_ * bytes, float_bytes));
      }
      for (size_t q = 0; q < w_.phase.size(); ++q) n += w_.phase[q] == p ? vector_ : 0;
      most = std::max(most, n);
    }
    constexpr int others = 28;
    return most + others;
  }

  void consider(int64_t tile, int cluster, int threads) {
    if (one_is_enough_ && !ways_.empty()) return;
    if (cluster > 1 && (f_.pixels < 2 * cluster || w_.pixel_reductions.empty())) return;
    PixelLayout l{.vector = vector_, .threads = threads, .cluster = cluster, .tile = tile};
    l.subgroup = target_.subgroup;
    l.resident = resident_;
    constexpr int64_t registers_there = 65536;
    l.ctas_per_sm =
        static_cast<int>(std::min<int64_t>(registers_there / (threads * registers_), 8));
    if (l.ctas_per_sm == 0) return;
    const int64_t at_once = resident(l);
    if (at_once == 0 || too_large(l, at_once) || max_clusters(cluster, at_once) == 0) return;
    ways_.push_back({l, one_is_enough_ ? 0 : cost(l)});
  }

  // A cluster that occupies many SMs does not overlap loads and computation. Where it keeps one
  // tensor in shared memory, separate kernels that read it twice are faster.
  bool too_large(const PixelLayout& l, int64_t at_once) const {
    constexpr int64_t sm_count = 4;
    return !f_.unaligned && std::count(l.resident.begin(), l.resident.end(), true) == 1 &&
           l.cluster > sm_count * at_once;
  }

  // Co-resident thread blocks per SM.
  int64_t resident(const PixelLayout& l) const {
    constexpr int64_t reserved = 1 << 10, threads_there = 2048;
    const int64_t bytes = pixel_memory(f_, w_, l).end;
    if (bytes > target_.shared_per_block) return 0;
    return std::min({(target_.shared_per_block + reserved) / (bytes + reserved),
                     threads_there / l.threads, static_cast<int64_t>(l.ctas_per_sm)});
  }

  // Estimated instructions per pixel and channel in all sweeps.
  double instructions() const {
    double n = 0;
    for (int p = 0; p <= w_.last; ++p) {
      const std::vector<bool> used = w_.used_in(p);
      n += 2.0 * static_cast<double>(std::count(used.begin(), used.end(), true));
    }
    return n + w_.element.flops();
  }

  // Memory traffic relative to the bytes used: accesses are whole cache lines, and a tile's
  // channels of a pixel need not start or end at one.
  double spread(const PixelLayout& l) const {
    constexpr int64_t line = 128;
    constexpr double of_a_line = 0.11;
    double most = 1;
    for (const PixelForm::Input& in : f_.in) {
      if (!in.streams) continue;
      const int64_t tile_bytes = l.tile * size_of(in.dtype),
                    row_bytes = f_.channels * size_of(in.dtype);
      int64_t lines = 0;
      for (int64_t at = 0; at < row_bytes; at += tile_bytes)
        lines += (at + tile_bytes - 1) / line - at / line + 1;
      const double more = static_cast<double>(lines * line) / static_cast<double>(row_bytes) - 1;
      most = std::max(most, 1 + of_a_line * more);
    }
    return most;
  }

  // The share of instruction time that memory latency does not hide, by co-resident thread blocks
  // per SM.
  static double latency_share(int64_t blocks) {
    return blocks > 3 ? 0.28 : blocks == 3 ? 0.32 : blocks == 2 ? 0.4 : 0.45;
  }

  // Estimated microseconds, fitted to measurements on an H200.
  double cost(const PixelLayout& l) {
    constexpr double bytes_per_us = 4.1e6, clocks_per_us = 1800, lanes = 128, of_a_thread = 1200;
    const double elements = static_cast<double>(f_.images * f_.pixels * f_.channels);
    double moved = 0;
    for (const PixelForm::Input& in : f_.in)
      if (in.streams) moved += elements * static_cast<double>(size_of(in.dtype));
    for (size_t k = 0; k < f_.out.size(); ++k)
      if (!f_.per_channel[k]) moved += elements * static_cast<double>(size_of(f_.out[k]));
    const int64_t at_once = resident(l), clusters = f_.images * (f_.channels / l.tile);
    const int64_t there = max_clusters(l.cluster, at_once);
    const int64_t each = ceil_div(clusters * at_once, there);  // blocks of a SM
    const auto threads = static_cast<double>(std::min(at_once, each) * l.threads);
    const double busy = std::clamp(threads / 495, 0.3, 0.725);
    const double work =
        static_cast<double>(each) * (static_cast<double>(l.tile * l.pixels(f_)) * instructions_ +
                                     static_cast<double>(l.threads) * of_a_thread);
    const double exchange = l.cluster > 1 ? 1.18 + 0.02 * l.cluster : 0.3;
    const auto waves = static_cast<double>(ceil_div(clusters, there));
    return moved / bytes_per_us * spread(l) +
           latency_share(each == 1 ? 4 : at_once) * work / lanes / busy / clocks_per_us +
           waves * (1 + w_.last * exchange);
  }

  const PixelForm& f_;
  PixelWork w_;
  const Target& target_;
  bool one_is_enough_ = false;
  int vector_, registers_;
  double instructions_;
  std::vector<bool> resident_;
  std::vector<Way> ways_;
  std::map<std::pair<int, int64_t>, int64_t>
      max_clusters_;  // by thread blocks per cluster and per SM
};

}  // namespace

PixelMemory pixel_memory(const PixelForm& f, const PixelWork& w, const PixelLayout& l) {
  PixelMemory m;
  const auto take = [&](int64_t bytes) {
    const int64_t at = m.end;
    m.end += rounded(bytes);
    return at;
  };
  for (size_t i = 0; i < f.in.size(); ++i)
    m.resident.push_back(l.resident[i] ? take(l.pixels(f) * l.tile * size_of(f.in[i].dtype)) : 0);
  int64_t at_once = 0;
  for (int p = 0; p <= w.last; ++p)
    at_once = std::max<int64_t>(at_once, std::count(w.phase.begin(), w.phase.end(), p));
  const int64_t row = l.tile * float_bytes,
                reductions = static_cast<int64_t>(w.pixel_reductions.size());
  m.scratch = take(at_once * l.sums() * row);
  m.barriers = take(l.cluster > 1 ? barrier_bytes * (w.last + 1) : 0);
  m.sums = take(l.cluster > 1 ? reductions * l.cluster * row : 0);
  m.terms = take(static_cast<int64_t>(w.group_reductions.size()) * row);
  m.carried = take(static_cast<int64_t>(w.carried.size()) * row);
  return m;
}

std::vector<PixelLayout> pixel_layouts(const PixelForm& f, const Target& target) {
  return Chooser(f, target).run();
}

std::optional<PixelLayout> pixel_layout(const PixelForm& f, const Target& target, int64_t tile,
                                        int64_t cluster, int64_t threads) {
  if (auto wanted = Chooser(f, target).only(tile, cluster, threads)) return wanted;
  const std::vector<PixelLayout> all = pixel_layouts(f, target);
  return all.empty() ? std::nullopt : std::optional(all[0]);
}

bool pixel_fits(const PixelForm& f, const Target& target) { return Chooser(f, target).any(); }

}  // namespace ebb::codegen
