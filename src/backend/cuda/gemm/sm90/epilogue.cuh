// The epilogue of mainloop.cuh: what is added to the accumulators of a tile. How they are stored:
// store.cuh.
#pragma once

#include "backend/cuda/gemm/sm90/producer.cuh"
#include "backend/cuda/kit/mma.cuh"

namespace ebb::cuda::gemm {

// The accumulators of a consumer thread: of 64 rows each, see Spot.
template <class C>
using Accumulators = float[C::rows][C::columns / 2];

// The origin of a warp's rows and columns in the tile, and this thread's lane. Of each 8 columns a
// thread has two consecutive ones in row lane / 4 and two in that row + 8.
template <class C>
struct Spot {
  int row, column, lane;
  __device__ explicit Spot(const WorkUnit& u) {
    const int warp = math_thread<C>() / 32, group = warp / 4;
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
// The column of the GEMM that is column `at` of a tile.
template <class C>
__device__ int column_at(const Params& p, const WorkUnit& u, int at) {
  if (C::form != Form::gated) return u.n * C::tile_n + at;
  constexpr int half = C::tile_n / 2;
  return u.n * half + at + (at < half ? 0 : p.half - half);
}

// The bias of the tile's columns, spread over the threads of the math group: loaded before the
// mainloop, used after.
template <class C>
struct Bias {
  static constexpr int count = (C::tile_n + C::math_threads - 1) / C::math_threads;
  float mine[count];
  float factors[C::scales ? count : 1];  // the row of factors likewise, if there is one
  __device__ Bias(const Params& p, const WorkUnit& u) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int at = math_thread<C>() + i * C::math_threads;
      mine[i] = p.bias != nullptr && at < C::tile_n ? bias_element(p, column_at<C>(p, u, at)) : 0;
      if constexpr (C::scales) {
        factors[i] = 0;
        const int column = column_at<C>(p, u, at), first_row = u.m * C::tile_m;
        // a cluster may have a tile below the last row
        if (p.scale == nullptr || at >= C::tile_n || column >= p.n || first_row >= p.m) continue;
        const int64_t row = p.scale_rows.divide(first_row).quotient;
        factors[i] =
            to_float(static_cast<const typename C::T*>(p.scale)[row * p.scale_pitch + column]);
      }
    }
  }
  __device__ void multicast(uint32_t shared) const { to_shared(shared, mine); }
  __device__ void multicast_factors(uint32_t shared) const { to_shared(shared, factors); }

 private:
  static __device__ void to_shared(uint32_t shared, const float* values) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int at = math_thread<C>() + i * C::math_threads;
      if (at < C::tile_n)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + at * 4), "f"(values[i]) : "memory");
    }
  }
};

template <class C>
__device__ void add_bias(uint32_t shared, const WorkUnit& u, const Bias<C>& bias,
                         Accumulators<C>& d) {
  const int barrier = 1 + math_group<C>();
  if (C::bias_buffers == 1)
    named_barrier_sync(barrier, C::math_threads);  // the previous one is free
  bias.multicast(shared);
  named_barrier_sync(barrier, C::math_threads);  // the bias is there
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

__device__ inline float2 load_pair(uint32_t from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from));
  return v;
}

// The same, then each column times its factor. All rows of the tile have one row of factors.
template <class C>
__device__ void add_bias_and_scale(const SharedStorage<C>& s, const WorkUnit& u,
                                   const Bias<C>& bias, Accumulators<C>& d) {
  const int barrier = 1 + math_group<C>();
  const uint32_t biases = s.bias(math_group<C>());
  const uint32_t factors = s.bias(math_group<C>() + C::math_groups);
  named_barrier_sync(barrier, C::math_threads);  // the previous ones are free
  bias.multicast(biases);
  bias.multicast_factors(factors);
  named_barrier_sync(barrier, C::math_threads);  // they are there
  const Spot<C> at(u);
  const uint32_t skip = (at.column - u.n * C::tile_n + at.lane % 4 * 2) * 4;
#pragma unroll
  for (int j = 0; j < C::columns / 8; ++j) {
    const float2 x = load_pair(biases + skip + j * 32), by = load_pair(factors + skip + j * 32);
#pragma unroll
    for (int i = 0; i < C::rows; ++i) {
      d[i][j * 4] = (d[i][j * 4] + x.x) * by.x;
      d[i][j * 4 + 1] = (d[i][j * 4 + 1] + x.y) * by.y;
      d[i][j * 4 + 2] = (d[i][j * 4 + 2] + x.x) * by.x;
      d[i][j * 4 + 3] = (d[i][j * 4 + 3] + x.y) * by.y;
    }
  }
}

// ---- the residual, a row for each image: read where it is added
// ----------------------------------

template <class C>
__device__ bool adds_row_residual(const Params& p, const WorkUnit& u) {
  return p.residual_rows > 1 && u.partial < 0 && !p.cluster_split_k;
}

template <class T>
__device__ float2 pair_of(const T* from) {
  const auto two = *reinterpret_cast<const Vec<T, 2>*>(from);
  return {to_float(two.v[0]), to_float(two.v[1])};
}

template <class C, class T>
__device__ void add_row_residual_as(const Params& p, const WorkUnit& u, Accumulators<C>& d) {
  const Spot<C> at(u);
  const int column = at.column + at.lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < C::rows; ++i) {
    const int row = at.row + i * 64;
    if (row >= p.m) return;
    const int64_t image = (int64_t{u.batch} * p.m + row) / p.residual_rows;
    const T* from = static_cast<const T*>(p.residual) + image * p.n + column;
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
__device__ void add_row_residual(const Params& p, const WorkUnit& u, Accumulators<C>& d) {
  if (p.residual_type == DType::f32)
    add_row_residual_as<C, float>(p, u, d);
  else
    add_row_residual_as<C, typename C::T>(p, u, d);
}

// ---- the source operand, of the result's shape and type: residual, or input of the gradient
// ------

template <class C>
__device__ bool loads_source(const Params& p, const WorkUnit& u) {
  return (p.post == Post::activation_grad || p.residual_rows == 1) && u.partial < 0 &&
         !p.cluster_split_k;
}

// A warp's stores: subtiles of 16 rows of C::chunk columns, in sequence.
template <class C>
struct Subtiles {
  static constexpr int across = C::columns / C::chunk, count = across * C::rows;
  static constexpr int row_bytes = C::chunk * 2;
};

// The offset of 16-byte vector `i` of a row of a subtile: the swizzle of subtiles.
template <int row_bytes>
__device__ int swizzled(int row, int i) {
  return row * row_bytes + (i ^ (row_bytes == 128 ? row % 8 : row / 2 % 4)) * 16;
}

__device__ inline const void* source_of(const Params& p) {
  return p.post == Post::activation_grad ? p.grad_at : p.residual;
}
template <class C>
__device__ const typename C::T* source_element(const Params& p, const WorkUnit& u, int row,
                                               int column) {
  return static_cast<const typename C::T*>(source_of(p)) + (int64_t{u.batch} * p.m + row) * p.n +
         column;
}

// Issues the load of subtile `k` of the source, to where the subtile of the results will lie.
template <class C>
__device__ void load_source(const Params& p, const WorkUnit& u, int k, uint32_t to) {
  using B = Subtiles<C>;
  const Spot<C> at(u);
  constexpr int work_units = B::row_bytes / 16;
  const int top = at.row + k / B::across * 64, left = at.column + k % B::across * C::chunk;
#pragma unroll 1  // few registers are left
  for (int q = at.lane; q < 16 * work_units; q += 32) {
    const int line = q / work_units, i = q % work_units;
    const bool exists = top + line < p.m && left + i * 8 < p.n;
    const void* from = source_element<C>(p, u, top + line, left + i * 8);
    copy16(to + swizzled<B::row_bytes>(line, i), exists ? from : source_of(p), exists);
  }
  commit_copies();
}

// Prefetches the warp's rows of the source into L2, before the mainloop.
template <class C>
__device__ void prefetch_source(const Params& p, const WorkUnit& u) {
  const Spot<C> at(u);
  constexpr int lines = (C::columns + 63) / 64;  // of the cache, in a row
#pragma unroll 1
  for (int i = at.lane; i < C::rows * 16 * lines; i += 32) {
    const int line = i / lines, row = at.row + line / 16 * 64 + line % 16;
    const int column = at.column + i % lines * 64;
    if (row < p.m && column < p.n)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(source_element<C>(p, u, row, column)));
  }
}

// Issues the first source loads while the last MMAs are in flight.
template <class C>
__device__ void load_first_source(const Params& p, const SharedStorage<C>& s, const WorkUnit& u) {
  __syncwarp();  // the subtiles of the tile before have been read
#pragma unroll
  for (int k = 0; k < C::buffers && k < Subtiles<C>::count; ++k)
    load_source<C>(p, u, k, s.out(threadIdx.x / 32) + k * C::buffer_bytes);
}

}  // namespace ebb::cuda::gemm
