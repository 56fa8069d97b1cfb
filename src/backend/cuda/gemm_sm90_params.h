// The parameters of the kernels behind gemm_sm90.h.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/gemm_sm90.h"

namespace ebb::cuda::gemm {

// 16-bit or f32 results, in pieces of 16 bytes or element by element.
enum class Store : int { boxes, float_boxes, elements, floats };

struct Params {
  CUtensorMap a, b;
  void* out;
  float* parts;  // the partial sums, tile below tile
  const void *bias, *addend;
  int64_t out_matrix;  // elements from one matrix of the result to the next
  int m, n;
  int groups_m, groups_n, band;  // tiles, or pairs of them; band: rows of groups worked on at once
  int batches, steps;            // steps: blocks of 64 values of k
  int whole, rest, splits, units;                   // tiles, or pairs: not split, split
  int k_blocks, taps;                               // steps = k_blocks * taps
  int a_batch, b_batch;                             // 0: one matrix for the whole batch
  int out_w, out_h, out_hw, stride, top, left, kw;  // images
  int channels, channel_blocks;  // wgrad: columns are taps of blocks of 64 channels
  int addend_rows;               // of the result that share a row of the addend; 0: none
  float* row_sums;               // a line of m for each part of each tile along n; or null
  int row_sum_tiles;
  DType bias_type, addend_type;
  Store store;
  Share share;
  int cluster;    // blocks
  bool together;  // the cluster's blocks compute parts of one tile
};

// What the kernel gets, for operands at these addresses.
Params params_of(const Problem& p, const Choice& c, const Operands& o);
// Adds up the partial sums in the workspace, in their order, with bias and addend, and those of A's
// rows. `q`: of the product.
void sum_parts(const Problem& p, const Choice& c, const Operands& o, const Params& q,
               CudaDevice& device);

}  // namespace ebb::cuda::gemm
