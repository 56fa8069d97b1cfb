// The tile scheduler: which work units a CTA computes, in which order. See config.cuh.
#pragma once

#include "backend/cuda/gemm/sm90/params.h"
#include "backend/cuda/kit/prologue.cuh"

namespace ebb::cuda::gemm {

// A work unit: a tile over all of k (`partial` is -1) or one of its splits (`partial` is the index
// of its accumulators in the workspace).
struct WorkUnit {
  int m, n, batch, first, last, partial;
  int split = 0;  // index of the split
};

// The rasterisation swizzle: tiles are visited in strips `raster` tiles high, so that concurrent
// CTAs share operands in L2.
__device__ inline void set_tile(const Params& p, int tile, int rank, WorkUnit& u) {
  const Divided of_batch = p.tiles.divide(tile);
  const Divided of_raster = p.raster_tiles.divide(of_batch.remainder);
  const int top = of_raster.quotient * p.raster.by;
  const bool last = top + p.raster.by >= p.groups_m;
  const Divided at = (last ? p.last_raster : p.raster).divide(of_raster.remainder);
  u.batch = of_batch.quotient;
  u.m = top + at.remainder;
  u.n = at.quotient;
  if (p.multicast == Multicast::b) u.m = u.m * 2 + rank;
  if (p.multicast == Multicast::a) u.n = u.n * 2 + rank;
}

// First the data-parallel tiles, then the split-K tiles, split by split.
__device__ inline WorkUnit work_unit_at(const Params& p, int index, int rank) {
  WorkUnit u{.m = 0, .n = 0, .batch = 0, .first = 0, .last = p.steps, .partial = -1};
  const auto take_split = [&](int split) {
    u.first = split * p.split_steps + ::min(split, p.longer_splits);
    u.last = u.first + p.split_steps + (split < p.longer_splits ? 1 : 0);
    u.split = split;
  };
  if (p.cluster_split_k) {
    take_split(rank);
  } else if (index >= p.data_parallel) {
    const Divided i = p.rest.divide(index - p.data_parallel);
    take_split(i.quotient);
    u.partial =
        (i.remainder * p.split_k + u.split) * (p.multicast == Multicast::none ? 1 : 2) + rank;
    index = p.data_parallel + i.remainder;
  }
  set_tile(p, index, rank, u);
  return u;
}

// A CTA's work units; the first is found before there is anything to wait for.
struct WorkUnits {
  WorkUnit u;
  int index, rank;
  __device__ explicit WorkUnits(const Params& p)
      : index(cluster_index()), rank(static_cast<int>(cluster_rank())) {
    u = work_unit_at(p, index, rank);
  }
  __device__ bool more(const Params& p) const { return index + cluster_count() < p.work_units; }
  __device__ bool next(const Params& p) {
    if (!more(p)) return false;
    index += cluster_count();
    u = work_unit_at(p, index, rank);
    return true;
  }
};

}  // namespace ebb::cuda::gemm
