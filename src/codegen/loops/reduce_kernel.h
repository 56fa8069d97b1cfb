// Kernels of the first stage of reductions: partial sums (or maxima) of an expression.
#pragma once

#include <vector>

#include "codegen/loops/loop_kernel.h"
#include "codegen/target.h"
#include "core/dtype.h"
#include "ir/expr.h"
#include "ir/iteration_space.h"

namespace ebb::codegen {

// The space is [kept..., run..., inner...]: the run is reduced, inner dims are kept in this stage
// (those that are reduced as well are summed in the second).
struct ReduceForm {
  Expr expr;
  std::vector<DType> in;
  IterationSpace space;  // strides of the inputs
  size_t kept_dims = 0, run_end = 0;
  bool maximum = false, narrow = false;
  float scale = 1;
  bool unaligned = false;  // single elements only
  std::vector<DType> out;  // of the results; of partial ones f32

  int64_t kept() const { return space.numel(0, static_cast<int64_t>(kept_dims)); }
  int64_t run() const {
    return space.numel(static_cast<int64_t>(kept_dims), static_cast<int64_t>(run_end));
  }
  int64_t inner() const { return space.numel(static_cast<int64_t>(run_end), space.rank()); }
  bool rows() const { return run_end == space.sizes.size(); }
};

// Partitioning. Rows (no inner dims): `lanes` threads per output, consecutive along the run.
// Columns: a thread block is `across` vectors of inner elements times `down` run indices. The run
// is divided into `chunks`.
struct ReduceLayout {
  int vector = 1, steps = 1;
  int lanes = 1;                      // 1, 8, a subgroup or 256
  int across = 1, down = 1;           // down is a power of two
  int64_t tiles = 1;                  // of `across` vectors
  int64_t chunks = 1, per_chunk = 0;  // vectors (rows) or run indices (columns) per chunk
  bool direct = false;                // one chunk: writes scaled results itself
};
ReduceLayout layout_of(const ReduceForm& form, const Target& target);

LoopKernel write_reduce(const ReduceForm& form, const ReduceLayout& layout, const Target& target);

}  // namespace ebb::codegen
