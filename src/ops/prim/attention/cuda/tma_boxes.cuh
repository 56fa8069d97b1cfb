// Boxes of heads for TMA copies, as the sm_90a kernels of attention and its gradient load and store
// them.
#pragma once

#include "backend/cuda/kit/tma.h"
#include "core/dtype.h"
#include "ops/prim/attention/cuda/head.cuh"

namespace ebb::ops::cuda {

// Boxes of `box` rows and `columns` columns of a head, in a tensor [N,rows,a / group,width] that
// lies so.
struct HeadBoxes {
  const void* data;
  int64_t rows;
  HeadStrides lies;
  int box, columns = 64, group = 1;
};

// Of k, v or a gradient of theirs.
inline HeadBoxes key_boxes(const HeadSizes& z, const HeadStrides& lies, const void* data, int box,
                           int columns = 64) {
  return {data, z.s, lies, box, columns, z.group};
}

// 16-bit dtypes.
inline CUtensorMap map_of(const HeadSizes& z, DType dtype, const HeadBoxes& b) {
  namespace cuda = ebb::cuda;
  return cuda::tiled_map({.data = b.data,
                          .format = dtype == DType::bf16 ? cuda::Format::bf16 : cuda::Format::f16,
                          .rank = 4,
                          .size = {z.width, b.rows, z.a / b.group, z.heads / z.a},
                          .stride = {b.lies.t, b.lies.a, b.lies.n}},
                         {.inner = b.columns, .outer = b.box});
}

}  // namespace ebb::ops::cuda
