// The parameters of the kernels behind problem.h.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "backend/cuda/device/device.h"
#include "backend/cuda/gemm/sm90/problem.h"
#include "base/fast_div.h"

namespace ebb::cuda::gemm {

// 16-bit or f32 results, in vectors of 16 bytes or element by element.
enum class Store : int { subtiles, float_subtiles, elements, floats };

// An operand that is prefetched into L2 before griddepcontrol.wait: its bytes, and those that a CTA
// prefetches; none: 0.
struct L2Prefetch {
  const char* data;
  int64_t bytes;
  uint32_t bytes_per_cta;
};

struct Params {
  CUtensorMap a, b;
  void *out, *kept;
  float* partials;  // split-K partials, tile below tile
  const void *bias, *residual, *grad_at, *scale;
  int scale_pitch;
  FastDiv scale_rows;
  int64_t out_matrix;  // elements from one matrix of the result to the next
  int m, n;
  int half;                                // Form::gated: columns of each half; else 0
  int groups_m, groups_n;                  // tiles, or pairs of them
  FastDiv raster, last_raster;             // height of a raster strip; of the last one
  FastDiv tiles, raster_tiles;             // groups of a GEMM, of a strip
  int steps;                               // blocks of 64 values of k
  int split_steps, longer_splits;          // steps of a split; the first splits have one more
  int data_parallel, split_k, work_units;  // data_parallel: tiles, or pairs, not split
  FastDiv rest;                            // and those that are
  int k_blocks;                            // steps = k_blocks * taps
  FastDiv taps;
  int a_batch, b_batch;          // 0: one matrix for the whole batch
  int out_h, stride, top, left;  // images
  FastDiv out_w, out_hw, kw;
  FastDiv up;  // Form::phases: see Images
  int up_top, up_left;
  int channels;
  FastDiv channel_blocks;  // wgrad: columns are taps of blocks of 64 channels
  int residual_rows;       // of the result that share a row of the residual; 0: none
  float* row_sums;         // two lines of m for each split of each tile along n; or null
  int row_sum_tiles;
  DType bias_type, residual_type;
  Post post;
  Activation activation;
  bool gate_first;
  Store store;
  Multicast multicast;
  int cluster;           // blocks
  bool cluster_split_k;  // the cluster's CTAs compute splits of one tile
  int stages;            // of kernels that leave their number open
  L2Prefetch prefetch_a, prefetch_b;
};

// Those of kernels whose accumulators take up to two more products (Problem::more_k). Others do not
// carry the 768 bytes: with them, and the producer's test of each step, DiT-XL/2's step took 2 %
// longer.
struct SumParams : Params {
  struct Pair {
    CUtensorMap a, b;
    int first;  // step
  };
  Pair more[2];
};

// MN-major operands come in blocks of 64 rows of m or n, or of 32 for tiles that 64 does not
// divide.
constexpr bool narrow_rows(int tile) { return tile % 64 != 0; }

// What the kernel gets, for operands at these addresses; but for `stages` and what comes ahead.
Params params_of(const Problem& p, const Choice& c, const Operands& o);
SumParams sum_params_of(const Problem& p, const Choice& c, const Operands& o);
// Sets the L2 prefetch of small operands.
void set_l2_prefetch(Params& q, const Problem& p, const Operands& o, int64_t blocks);
// Adds up the partial sums in the workspace, in their order, with bias and residual, and those of
// A's rows. `q`: of the product.
void reduce_split_k(const Problem& p, const Choice& c, const Operands& o, const Params& q,
                    CudaDevice& device);

}  // namespace ebb::cuda::gemm
