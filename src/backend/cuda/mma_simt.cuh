// Products in f32 by plain multiply-adds, exact to f32 rounding, for operands of any float dtype
// that views (mma_views.cuh) describe: c[m, n] = sum over k of a[m, k] b[n, k] (+ bias[n]).
#pragma once

#include "backend/cuda/mma_parts.cuh"
#include "backend/cuda/mma_views.cuh"

namespace ebb::cuda {

// A block computes M x N; each thread 8 x 8, as 2 x 2 squares of 4 x 4 that lie half a tile apart,
// so that the reads of neighbouring threads are neighbours too.
template <int M, int N>
struct SimtTile {
  static constexpr int m = M, n = N, depth = 16;
  static constexpr int threads = M / 8 * (N / 8);
  static constexpr int line_a = M + 4, line_b = N + 4;  // floats, padded
  static constexpr int stage = (line_a + line_b) * depth;
  static constexpr int shared_bytes = 2 * stage * 4;
};

// Brings one operand in, through registers: lines of shared memory are steps of k.
template <class View, int Rows, int Depth, int Line, int Threads, K Where>
struct SimtLoader {
  static constexpr int lines = Where == K::inner ? Rows : Depth;
  static constexpr int pieces = (Where == K::inner ? Depth : Rows) / 4;
  static constexpr int step = Threads / pieces, count = lines / step;
  static_assert(step * pieces == Threads && count * step == lines);

  const View& view;
  const void* data;
  DType dtype;
  bool vector;  // f32 in aligned and whole pieces of 4
  int first, line, piece;
  typename View::Outer outers[Where == K::inner ? count : 1];
  typename View::Inner fixed_inner;
  float v[count][4];

  struct Source {
    const void* data;
    DType dtype;
    bool vector;
  };
  __device__ __forceinline__ SimtLoader(const View& w, const Source& s, int start)
      : view(w),
        data(s.data),
        dtype(s.dtype),
        vector(s.vector && s.dtype == DType::f32),
        first(start),
        line(static_cast<int>(threadIdx.x) / pieces),
        piece(static_cast<int>(threadIdx.x) % pieces) {
    if constexpr (Where == K::inner) {
#pragma unroll
      for (int i = 0; i < count; ++i) outers[i] = view.outer(first + line + i * step);
    } else {
      fixed_inner = view.inner(first + piece * 4);
    }
  }

  __device__ __forceinline__ typename View::Outer outer(int i, int k) const {
    if constexpr (Where == K::inner)
      return outers[i];
    else
      return view.outer(k + line + i * step);
  }

  __device__ __forceinline__ void read_pieces(int k) {
    typename View::Inner inner = fixed_inner;
    if constexpr (Where == K::inner) inner = view.inner(k + piece * 4);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      int64_t offset;
      float4 x = {0.f, 0.f, 0.f, 0.f};
      if (view.at(outer(i, k), inner, offset))
        x = *reinterpret_cast<const float4*>(static_cast<const float*>(data) + offset);
      v[i][0] = x.x, v[i][1] = x.y, v[i][2] = x.z, v[i][3] = x.w;
    }
  }

  __device__ __forceinline__ void read_elements(int k) {
    typename View::Outer o[count];
#pragma unroll
    for (int i = 0; i < count; ++i) o[i] = outer(i, k);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const auto inner = view.inner((Where == K::inner ? k : first) + piece * 4 + e);
#pragma unroll
      for (int i = 0; i < count; ++i) {
        int64_t offset;
        v[i][e] = view.at(o[i], inner, offset) ? load_float(data, dtype, offset) : 0.f;
      }
    }
  }

  template <bool Vector>
  __device__ __forceinline__ void read(int k) {
    if (Vector || vector)
      read_pieces(k);
    else
      read_elements(k);
  }

  __device__ __forceinline__ void write(float* stage) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (Where == K::inner) {
#pragma unroll
        for (int e = 0; e < 4; ++e) stage[(piece * 4 + e) * Line + line + i * step] = v[i][e];
      } else {
        *reinterpret_cast<float4*>(stage + (line + i * step) * Line + piece * 4) = {
            v[i][0], v[i][1], v[i][2], v[i][3]};
      }
    }
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
__device__ __forceinline__ void multiply_floats(float (&sums)[8][8], const float* stage, int row,
                                                int col) {
#pragma unroll
  for (int k = 0; k < Tile::depth; ++k) {
    float a[8], b[8];
    read_eight(a, stage + k * Tile::line_a + row, Tile::m / 2);
    read_eight(b, stage + Tile::line_a * Tile::depth + k * Tile::line_b + col, Tile::n / 2);
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
  }
}

template <class Tile, class View>
__device__ __forceinline__ void store_floats(const float (&sums)[8][8], const GemmOutput& out,
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
      for (int e = 0; e < 4; ++e) v[e] = sums[i][h * 4 + e] + bias[e];
      store_row(out, a.out_row(row), col, v);
    }
  }
}

// grid: a block for each tile, split and z (place_of).  smem: two stages.  needs: with Vector, f32
// operands with a_vector and b_vector.  sums: f32.  deterministic: yes.
template <class Tile, class A, K WhereA, class B, K WhereB, bool Vector>
__global__ void __launch_bounds__(Tile::threads)
    gemm_simt(const __grid_constant__ GemmParams<A, B> p) {
  begin();
  __shared__ float4 shared[Tile::shared_bytes / 16];
  float* const ring = reinterpret_cast<float*>(shared);
  const Place at = place_of(blockIdx.x, p.m_tiles, p.n_tiles, p.splits);
  const auto a = p.a.of(at.z);
  const auto b = p.b.of(at.z);
  const int m = WhereA == K::inner ? a.outers : a.inners;
  const int k = WhereA == K::inner ? a.inners : a.outers;
  const int m0 = at.m_tile * Tile::m, n0 = at.n_tile * Tile::n;
  if (m0 >= m) return;  // phases of images differ in size
  const Steps steps = steps_of(k, Tile::depth, at.split, p.splits);
  SimtLoader<decltype(p.a.of(0)), Tile::m, Tile::depth, Tile::line_a, Tile::threads, WhereA> load_a(
      a, {p.a_data, p.a_dtype, p.a_vector}, m0);
  SimtLoader<decltype(p.b.of(0)), Tile::n, Tile::depth, Tile::line_b, Tile::threads, WhereB> load_b(
      b, {p.b_data, p.b_dtype, p.b_vector}, n0);
  const auto read = [&](int step) {
    load_a.template read<Vector>(step * Tile::depth);
    load_b.template read<Vector>(step * Tile::depth);
  };
  const auto write = [&](int stage) {
    load_a.write(ring + stage * Tile::stage);
    load_b.write(ring + stage * Tile::stage + Tile::line_a * Tile::depth);
  };
  constexpr int across = Tile::n / 8;
  const int row = static_cast<int>(threadIdx.x) / across * 4;
  const int col = static_cast<int>(threadIdx.x) % across * 4;
  float sums[8][8] = {};
  if (steps.first < steps.last) {
    read(steps.first);
    write(0);
  }
  for (int step = steps.first; step < steps.last; ++step) {
    __syncthreads();  // this stage is there; the other one has been read by all
    const int stage = (step - steps.first) % 2;
    const bool more = step + 1 < steps.last;
    if (more) read(step + 1);
    multiply_floats<Tile>(sums, ring + stage * Tile::stage, row, col);
    if (more) write(1 - stage);
  }
  store_floats<Tile>(sums, output_of(p, at.split), a, m0 + row, n0 + col, m);
}

}  // namespace ebb::cuda
