// Partitioning of moments among thread blocks.
#pragma once

#include "ops/prim/moments/op.h"

namespace ebb::ops::cuda {

constexpr int moments_threads = 512;  // of a block, at most

// x is [outer, pixels, channels]. Where groups are contiguous they are rows: one pixel, one group.
struct MomentsProblem {
  int64_t outer = 1, pixels = 1, channels = 1, groups = 1, element = 4;
  int64_t group_channels() const { return channels / groups; }
};
MomentsProblem moments_problem(const Signature& s);

// Thread blocks process `tile` channels of `chunk` pixels, `rows` pixels at a time. tile 0: the
// sizes do not fit.
struct MomentsPlan {
  int64_t tile = 0, rows = 1, chunk = 1, chunks = 1;
  double cost = 0;
};

// The problem as images, and their plan, for accesses of some number of elements.
struct MomentsWay {
  MomentsProblem problem;
  MomentsPlan plan;
  int64_t partials() const {  // statistics of chunks to combine
    return plan.tile && plan.chunks > 1 ? problem.outer * problem.groups * plan.chunks : 0;
  }
  int64_t items() const { return plan.tile ? problem.outer * (problem.channels / plan.tile) : 0; }
};
MomentsWay moments_way(const MomentsProblem& p, int64_t pack, int sm_count);

}  // namespace ebb::ops::cuda
