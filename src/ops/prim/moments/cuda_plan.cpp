#include "ops/prim/moments/cuda_plan.h"

#include <algorithm>
#include <cmath>

namespace ebb::ops::cuda {

MomentsProblem moments_problem(const Signature& s) {
  const auto& a = s.as<Moments>();
  const Shape& x = s.in[0].shape;
  MomentsProblem p{.channels = x[-1], .groups = a.groups, .element = size_of(s.in[0].dtype)};
  for (int64_t d = 0; d < a.axis; ++d) p.outer *= x[d];
  for (int64_t d = a.axis; d < x.rank() - 1; ++d) p.pixels *= x[d];
  if (p.pixels == 1) {
    p.outer *= p.groups;
    p.channels /= p.groups;
    p.groups = 1;
  } else if (p.groups == 1) {
    p.channels *= p.pixels;
    p.pixels = 1;
  }
  return p;
}

namespace {

// Bytes that a block could read in the time of what else it does: starting, joining its threads;
// and joining the chunks.
constexpr double block_cost = 30e3, join_cost = 22e3;

// What the bytes of a tile cost: lines of memory that it uses in part.
double share_of_lines(const MomentsProblem& p, int64_t tile) {
  const int64_t bytes = tile * p.element;
  if (tile == p.channels || bytes % 128 == 0) return 1;
  return bytes % 64 == 0 ? 1.1 : bytes % 32 == 0 ? 1.25 : 1.6;
}

// The best number of chunks for a tile.
MomentsPlan chunks_for(const MomentsProblem& p, int64_t tile, int64_t pack, int sm_count) {
  constexpr int64_t most_chunks = 192;
  const double slots = 2.0 * sm_count;  // blocks that run at a time
  const double pixel = static_cast<double>(tile * p.element) * share_of_lines(p, tile);
  MomentsPlan best;
  for (int64_t c = 1; c <= std::min(p.pixels, most_chunks); ++c) {
    MomentsPlan plan{.tile = tile, .chunk = (p.pixels + c - 1) / c};
    plan.chunks = (p.pixels + plan.chunk - 1) / plan.chunk;
    plan.rows = std::clamp<int64_t>(moments_threads / (tile / pack), 1, plan.chunk);
    const double blocks = static_cast<double>(p.outer * (p.channels / tile) * plan.chunks);
    const double joined = static_cast<double>(plan.chunks * (tile / p.group_channels()) * 16);
    plan.cost = std::ceil(blocks / slots) * (static_cast<double>(plan.chunk) * pixel + block_cost) +
                (plan.chunks > 1 ? join_cost + joined : 0);
    if (best.tile == 0 || plan.cost < best.cost) best = plan;
  }
  return best;
}

MomentsPlan image_plan(MomentsProblem p, int64_t pack, int sm_count) {
  MomentsPlan best;
  for (int64_t groups = p.groups; groups >= 1; --groups) {
    const int64_t tile = groups * p.group_channels();
    if (p.groups % groups != 0 || tile % pack != 0 || tile / pack > moments_threads) continue;
    const MomentsPlan plan = chunks_for(p, tile, pack, sm_count);
    if (best.tile == 0 || plan.cost < best.cost) best = plan;
  }
  return best;
}

// A long row as an image: as many channels as the threads of a block can take.
MomentsProblem row_as_image(MomentsProblem p, int64_t pack) {
  int64_t columns = std::min<int64_t>(moments_threads, p.channels / pack);
  while (p.channels / pack % columns != 0) --columns;
  p.pixels = p.channels / pack / columns;
  p.channels = columns * pack;
  return p;
}

}  // namespace

MomentsWay moments_way(const MomentsProblem& p, int64_t pack, int sm_count) {
  if (p.outer * p.pixels * p.channels == 0 || p.channels % pack != 0) return {p, {}};
  const MomentsProblem as = p.pixels == 1 ? row_as_image(p, pack) : p;
  return {as, image_plan(as, pack, sm_count)};
}

}  // namespace ebb::ops::cuda
