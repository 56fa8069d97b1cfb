// The way out of the kernel of gemm_sm90.cuh: what is added to the sums of a tile. How they are
// stored: gemm_sm90_store.cuh.
#pragma once

#include "backend/cuda/gemm_sm90_kernel.cuh"
#include "backend/cuda/mma.cuh"

namespace ebb::cuda::gemm {

// The sums of a multiplying thread: of 64 rows each, see Spot.
template <class C>
using Sums = float[C::rows][C::columns / 2];

// Where a warp's part of the tile begins, and who we are. A thread holds, of each 8 columns, two
// neighbours in row lane / 4 and two in that row + 8.
template <class C>
struct Spot {
  int row, column, lane;
  __device__ explicit Spot(const Unit& u) {
    const int warp = team_thread<C>() / 32, group = warp / 4;
    row = u.m * C::tile_m + group / C::across_n * C::rows * 64 + warp % 4 * 16;
    column = u.n * C::tile_n + group % C::across_n * C::columns;
    lane = threadIdx.x % 32;
  }
};

__device__ inline float bias_element(const Params& p, int column) {
  if (column >= p.n) return 0;
  if (p.bias_type == DType::f32) return static_cast<const float*>(p.bias)[column];
  if (p.bias_type == DType::f16) return to_float(static_cast<const __half*>(p.bias)[column]);
  return to_float(static_cast<const __nv_bfloat16*>(p.bias)[column]);
}
// The column of the product that is column `at` of a tile.
template <class C>
__device__ int column_at(const Params& p, const Unit& u, int at) {
  if (C::form != Form::gated) return u.n * C::tile_n + at;
  constexpr int half = C::tile_n / 2;
  return u.n * half + at + (at < half ? 0 : p.half - half);
}

// The bias of the columns of the tile, shared out among the team's threads: asked for before the
// products, used after.
template <class C>
struct Bias {
  static constexpr int count = (C::tile_n + C::team_threads - 1) / C::team_threads;
  float mine[count];
  __device__ Bias(const Params& p, const Unit& u) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int at = team_thread<C>() + i * C::team_threads;
      mine[i] = p.bias != nullptr && at < C::tile_n ? bias_element(p, column_at<C>(p, u, at)) : 0;
    }
  }
  __device__ void share(uint32_t shared) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int at = team_thread<C>() + i * C::team_threads;
      if (at < C::tile_n)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + at * 4), "f"(mine[i]) : "memory");
    }
  }
};

template <class C>
__device__ void add_bias(uint32_t shared, const Unit& u, const Bias<C>& bias, Sums<C>& d) {
  const int barrier = 1 + team<C>();
  if (C::bias_turns == 1) barrier_of(barrier, C::team_threads);  // nobody reads the one before
  bias.share(shared);
  barrier_of(barrier, C::team_threads);  // the bias is there
  const Spot<C> at(u);
  const uint32_t from = shared + (at.column - u.n * C::tile_n + at.lane % 4 * 2) * 4;
#pragma unroll
  for (int j = 0; j < C::columns / 8; ++j) {
    float x, y;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(from + j * 32));
#pragma unroll
    for (int i = 0; i < C::rows; ++i) {
      d[i][j * 4] += x;
      d[i][j * 4 + 1] += y;
      d[i][j * 4 + 2] += x;
      d[i][j * 4 + 3] += y;
    }
  }
}

// ---- the addend, a row for each image: read where it is added ----------------------------------

template <class C>
__device__ bool adds_rows(const Params& p, const Unit& u) {
  return p.addend_rows > 1 && u.part < 0 && !p.together;
}

template <class T>
__device__ float2 pair_of(const T* from) {
  const auto two = *reinterpret_cast<const Vec<T, 2>*>(from);
  return {to_float(two.v[0]), to_float(two.v[1])};
}

template <class C, class T>
__device__ void add_rows_as(const Params& p, const Unit& u, Sums<C>& d) {
  const Spot<C> at(u);
  const int column = at.column + at.lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < C::rows; ++i) {
    const int row = at.row + i * 64;
    if (row >= p.m) return;
    const int64_t image = (int64_t{u.batch} * p.m + row) / p.addend_rows;
    const T* from = static_cast<const T*>(p.addend) + image * p.n + column;
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j) {
      if (column + j * 8 >= p.n) continue;
      const float2 v = pair_of(from + j * 8);
      d[i][j * 4] += v.x;
      d[i][j * 4 + 1] += v.y;
      d[i][j * 4 + 2] += v.x;
      d[i][j * 4 + 3] += v.y;
    }
  }
}

template <class C>
__device__ void add_rows(const Params& p, const Unit& u, Sums<C>& d) {
  if (p.addend_type == DType::f32)
    add_rows_as<C, float>(p, u, d);
  else
    add_rows_as<C, typename C::T>(p, u, d);
}

// ---- an operand of the result's shape and type, box by box: added, or what slopes are taken at --

template <class C>
__device__ bool takes_boxes(const Params& p, const Unit& u) {
  return (p.post == Post::slope || p.addend_rows == 1) && u.part < 0 && !p.together;
}

// What a warp stores: boxes of 16 rows of C::chunk columns, one after the other.
template <class C>
struct Boxes {
  static constexpr int across = C::columns / C::chunk, count = across * C::rows;
  static constexpr int row_bytes = C::chunk * 2;
};

// Where 16-byte unit `i` of a row of a box lies: the swizzle of boxes.
template <int row_bytes>
__device__ int swizzled(int row, int i) {
  return row * row_bytes + (i ^ (row_bytes == 128 ? row % 8 : row / 2 % 4)) * 16;
}

__device__ inline const void* boxes_of(const Params& p) {
  return p.post == Post::slope ? p.slope_at : p.addend;
}
template <class C>
__device__ const typename C::T* box_at(const Params& p, const Unit& u, int row, int column) {
  return static_cast<const typename C::T*>(boxes_of(p)) + (int64_t{u.batch} * p.m + row) * p.n +
         column;
}

// Asks for box `k` of the operand, to where the box of the results will lie.
template <class C>
__device__ void ask_box(const Params& p, const Unit& u, int k, uint32_t to) {
  using B = Boxes<C>;
  const Spot<C> at(u);
  constexpr int units = B::row_bytes / 16;
  const int top = at.row + k / B::across * 64, left = at.column + k % B::across * C::chunk;
#pragma unroll 1  // few registers are left
  for (int q = at.lane; q < 16 * units; q += 32) {
    const int line = q / units, i = q % units;
    const bool exists = top + line < p.m && left + i * 8 < p.n;
    const void* from = box_at<C>(p, u, top + line, left + i * 8);
    copy16(to + swizzled<B::row_bytes>(line, i), exists ? from : boxes_of(p), exists);
  }
  commit_copies();
}

// Brings the warp's part of the operand near, before the products.
template <class C>
__device__ void fetch_boxes(const Params& p, const Unit& u) {
  const Spot<C> at(u);
  constexpr int lines = (C::columns + 63) / 64;  // of the cache, in a row
#pragma unroll 1
  for (int i = at.lane; i < C::rows * 16 * lines; i += 32) {
    const int line = i / lines, row = at.row + line / 16 * 64 + line % 16;
    const int column = at.column + i % lines * 64;
    if (row < p.m && column < p.n)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(box_at<C>(p, u, row, column)));
  }
}

// Asks for the first boxes, while the last products are being made.
template <class C>
__device__ void ask_boxes(const Params& p, const Places<C>& s, const Unit& u) {
  __syncwarp();  // the boxes of the tile before have been read
#pragma unroll
  for (int k = 0; k < C::buffers && k < Boxes<C>::count; ++k)
    ask_box<C>(p, u, k, s.out(threadIdx.x / 32) + k * C::buffer_bytes);
}

}  // namespace ebb::cuda::gemm
