// GEMMs in f32 on CUDA cores (SIMT), exact to f32 rounding, for operands of any float dtype
// described by views (views.cuh): c[m, n] = sum over k of a[m, k] b[n, k] (+ bias[n]).
#pragma once

#include "backend/cuda/gemm/general/common.cuh"
#include "backend/cuda/gemm/general/views.cuh"
#include "backend/cuda/kit/mma.cuh"

namespace ebb::cuda {

// A thread block computes M x N; each thread 8 x 8, as 2 x 2 squares of 4 x 4 that lie half a tile
// apart, so that consecutive threads read consecutive addresses.
template <int M, int N>
struct SimtTile {
  static constexpr int m = M, n = N, depth = 8;
  static constexpr int threads = M / 8 * (N / 8);
  static constexpr int residents = threads == 256 ? 2 : 6;  // thread blocks per SM
  static constexpr int line_a = M + 4, line_b = N + 4;      // floats, padded
  static constexpr int stage = (line_a + line_b) * depth;
  static constexpr int stages = arch >= 80 ? 4 : 2;
  static constexpr int shared_bytes = stages * stage * 4;
};

// Loads one operand, stage after stage: lines of shared memory are steps along k. A thread has
// every `step`-th vector of `VectorSize` contiguous elements. Where k is the contiguous index,
// elements go to different lines, one by one.
template <class View, class Tile, int Rows, int VectorSize, K Where>
struct SimtLoader {
  static constexpr bool inner_moves = Where == K::inner;
  static constexpr int line_floats = Rows + 4;
  static constexpr int vectors = (inner_moves ? Tile::depth : Rows) / VectorSize;  // along `inner`
  static constexpr int step = Tile::threads / vectors;
  static constexpr int count = (inner_moves ? Rows : Tile::depth) / step;
  static_assert(VectorSize == 1 || !inner_moves);
  static_assert(step * vectors == Tile::threads &&
                step * count * vectors * VectorSize == Rows * Tile::depth);

  const View& view;
  const void* data;
  DType dtype;
  int line, vector;
  // Of each vector; or, where `outer` runs along k, of the first only.
  typename View::Outer outers[inner_moves ? count : 1];
  typename View::Inner inner;

  struct Source {
    const void* data;
    DType dtype;
  };
  // From `first` on along the index that is not k, and `k`.
  __device__ __forceinline__ SimtLoader(const View& w, const Source& s, int first, int k)
      : view(w),
        data(s.data),
        dtype(s.dtype),
        line(static_cast<int>(threadIdx.x) / vectors),
        vector(static_cast<int>(threadIdx.x) % vectors) {
    inner = view.inner((inner_moves ? k : first) + vector * VectorSize);
#pragma unroll
    for (int i = 0; i < (inner_moves ? count : 1); ++i)
      outers[i] = view.outer((inner_moves ? first : k) + line + i * step);
  }

  // f32 is copied as it is; `Only`: there is no other dtype.
  template <bool Only>
  __device__ __forceinline__ void put(float* to, int64_t offset, bool valid) const {
    if constexpr (VectorSize == 4)
      copy16(shared_address(to), static_cast<const float*>(data) + (valid ? offset : 0), valid);
    else if (Only || dtype == DType::f32)
      copy4(shared_address(to), static_cast<const float*>(data) + (valid ? offset : 0), valid);
    else
      *to = valid ? load_float(data, dtype, offset) : 0.f;
  }

  template <bool Only>
  __device__ __forceinline__ void load(float* stage) {
    typename View::Outer outer = outers[0];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (inner_moves) outer = outers[i];
      int64_t offset;
      const bool valid = view.at(outer, inner, offset);
      const int at = inner_moves ? vector * line_floats + line + i * step
                                 : (line + i * step) * line_floats + vector * VectorSize;
      put<Only>(stage + at, offset, valid);
      if constexpr (!inner_moves) view.next(outer, step);
    }
    if constexpr (inner_moves)
      view.next(inner, Tile::depth);
    else
      view.next(outers[0], Tile::depth);
  }
};

// Four floats of a line of shared memory, at `at` and half a tile further.
__device__ __forceinline__ void read_eight(float (&v)[8], const float* at, int half) {
  const float4 low = *reinterpret_cast<const float4*>(at);
  const float4 high = *reinterpret_cast<const float4*>(at + half);
  v[0] = low.x, v[1] = low.y, v[2] = low.z, v[3] = low.w;
  v[4] = high.x, v[5] = high.y, v[6] = high.z, v[7] = high.w;
}

template <class Tile>
__device__ __forceinline__ void multiply_floats(float (&acc)[8][8], const float* stage, int row,
                                                int col) {
#pragma unroll
  for (int k = 0; k < Tile::depth; ++k) {
    float a[8], b[8];
    read_eight(a, stage + k * Tile::line_a + row, Tile::m / 2);
    read_eight(b, stage + Tile::line_a * Tile::depth + k * Tile::line_b + col, Tile::n / 2);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
  }
}

template <class Tile, class View>
__device__ __forceinline__ void store_floats(const float (&acc)[8][8], const GemmOutput& out,
                                             const View& a, int m, int n, int m_end) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int col = n + h * Tile::n / 2;
    float bias[4];
    load_bias(out, col, bias);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = m + i / 4 * Tile::m / 2 + i % 4;
      if (row >= m_end || col >= out.n) continue;
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) v[e] = acc[i][h * 4 + e] + bias[e];
      store_row(out, a.out_row(row), col, v);
    }
  }
}

// Accumulates `steps` along k for this thread's 8 x 8 elements of the tile.
template <class Tile, K WhereA, K WhereB, bool Vector, class A, class B, class P>
__device__ __forceinline__ void multiply_simt(float (&acc)[8][8], const A& a, const B& b,
                                              const P& p, const BlockTile& at, const Steps& steps) {
  __shared__ float4 shared[Tile::shared_bytes / 16];
  constexpr int stages = Tile::stages;
  constexpr int vector_a = Vector && WhereA == K::outer ? 4 : 1;
  constexpr int vector_b = Vector && WhereB == K::outer ? 4 : 1;
  float* const ring = reinterpret_cast<float*>(shared);
  const int k = steps.first * Tile::depth;
  SimtLoader<A, Tile, Tile::m, vector_a, WhereA> load_a(a, {p.a_data, p.a_dtype},
                                                        at.m_tile * Tile::m, k);
  SimtLoader<B, Tile, Tile::n, vector_b, WhereB> load_b(b, {p.b_data, p.b_dtype},
                                                        at.n_tile * Tile::n, k);
  const auto load = [&](int stage) {
    load_a.template load<Vector>(ring + stage * Tile::stage);
    load_b.template load<Vector>(ring + stage * Tile::stage + Tile::line_a * Tile::depth);
  };
  constexpr int across = Tile::n / 8;
  const int row = static_cast<int>(threadIdx.x) / across * 4;
  const int col = static_cast<int>(threadIdx.x) % across * 4;
#pragma unroll
  for (int s = 0; s < stages - 1; ++s) {
    if (steps.first + s < steps.last) load(s);
    commit_copies();
  }
  int stage = 0;
  for (int step = steps.first; step < steps.last; ++step) {
    wait_copies<stages - 2>();
    __syncthreads();  // this stage is complete; the previous one is free
    if (step + stages - 1 < steps.last) load(stage == 0 ? stages - 1 : stage - 1);
    commit_copies();
    multiply_floats<Tile>(acc, ring + stage * Tile::stage, row, col);
    stage = stage + 1 == stages ? 0 : stage + 1;
  }
}

// grid: a thread block per tile, split and z (block_tile).  smem: the stages.  needs: with Vector,
// f32 operands, those with K::outer in aligned vectors.  sums: f32.  deterministic: yes.
template <class Tile, class A, K WhereA, class B, K WhereB, bool Vector>
__global__ void __launch_bounds__(Tile::threads, Tile::residents)
    gemm_simt(const __grid_constant__ GemmParams<A, B> p) {
  begin();
  const BlockTile at = block_tile(blockIdx.x, p.m_tiles, p.n_tiles, p.splits);
  const auto a = p.a.of(at.z);
  const auto b = p.b.of(at.z);
  const int m = WhereA == K::inner ? a.outers : a.inners;
  const int k = WhereA == K::inner ? a.inners : a.outers;
  if (at.m_tile * Tile::m >= m) return;  // phases of images differ in size
  float acc[8][8] = {};
  multiply_simt<Tile, WhereA, WhereB, Vector>(acc, a, b, p, at,
                                              steps_of(k, Tile::depth, at.split, p.splits));
  constexpr int across = Tile::n / 8;
  const int row = static_cast<int>(threadIdx.x) / across * 4;
  const int col = static_cast<int>(threadIdx.x) % across * 4;
  store_floats<Tile>(acc, output_of(p, at.split), a, at.m_tile * Tile::m + row,
                     at.n_tile * Tile::n + col, m);
}

}  // namespace ebb::cuda
