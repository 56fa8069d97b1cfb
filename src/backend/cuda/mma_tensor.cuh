// GEMMs of 16-bit operands by tensor cores: c[m, n] = sum over k of a[m, k] b[n, k] (+ bias[n]),
// for operands that views (mma_views.cuh) describe. Sums in f32.
#pragma once

#include "backend/cuda/mma.cuh"
#include "backend/cuda/mma_common.cuh"
#include "backend/cuda/mma_views.cuh"

namespace ebb::cuda {

// A block computes M x N by WarpsM x WarpsN warps, Depth of k at a time; Ahead: multiply_ahead.
template <int M, int N, int WarpsM, int WarpsN, int Depth, int Stages, bool Pipelined = false>
struct TensorTile {
  static constexpr bool pipelined = Pipelined;
  static constexpr int m = M, n = N, depth = Depth;
  static constexpr int warps_n = WarpsN;
  static constexpr int threads = WarpsM * WarpsN * 32;
  static constexpr int warp_m = M / WarpsM, warp_n = N / WarpsN;
  static constexpr int stage_elements = (M + N) * Depth;
  // Before sm_80 copies are not asynchronous: two stages do.
  static constexpr int stages_of(int architecture) { return architecture >= 80 ? Stages : 2; }
  static constexpr int epilogue_stride = warp_n + 8;  // floats; spreads rows over the banks
  static constexpr int epilogue_bytes = WarpsM * WarpsN * 16 * epilogue_stride * 4;
  static constexpr int shared_bytes(int architecture) {
    const int ring = stages_of(architecture) * stage_elements * 2;
    return ring > epilogue_bytes ? ring : epilogue_bytes;
  }
};

// ---- from memory to shared memory ------------------------------------------------------------

// One operand's part of a stage: `lines` of `width` elements, where the elements of a line are
// neighbours in memory, in 16-byte vectors. Pieces are exchanged within a line (xor) so that
// ldmatrix, which reads 8 lines at once, finds them in different banks.
template <int Rows, int Depth, K Where>
struct StageLayout {
  static constexpr int lines = Where == K::inner ? Rows : Depth;
  static constexpr int width = Where == K::inner ? Depth : Rows;
  static constexpr int pieces = width / 8;
  static_assert(pieces >= 4);
  __host__ __device__ static constexpr int turn(int line) {
    return pieces == 4 ? (line >> 1) & 3 : line & 7;
  }
  // Element offset of a vector.
  __host__ __device__ static constexpr int offset(int line, int piece) {
    return line * width + (piece ^ turn(line)) * 8;
  }
};

// Brings one operand in, stage after stage. A thread has the same vector of every `step`-th line.
template <class T, class View, class Layout, int Threads, int Depth, K Where>
struct StageLoader {
  static constexpr int step = Threads / Layout::pieces, count = Layout::lines / step;
  static_assert(step * Layout::pieces == Threads && count * step == Layout::lines);
  static constexpr bool inner_moves = Where == K::inner;

  const View& view;
  const T* data;
  int line, piece;
  // Of each line; or, where lines are steps along k, of the first line only.
  typename View::Outer outers[inner_moves ? count : 1];
  typename View::Inner inner;

  // From `first` on along the index that is not k, and `k`.
  __device__ __forceinline__ StageLoader(const View& v, const void* d, int first, int k)
      : view(v),
        data(static_cast<const T*>(d)),
        line(static_cast<int>(threadIdx.x) / Layout::pieces),
        piece(static_cast<int>(threadIdx.x) % Layout::pieces) {
    inner = view.inner((inner_moves ? k : first) + piece * 8);
#pragma unroll
    for (int i = 0; i < (inner_moves ? count : 1); ++i)
      outers[i] = view.outer((inner_moves ? first : k) + line + i * step);
  }

  __device__ __forceinline__ void move_on() {
    if constexpr (inner_moves)
      view.next(inner, Depth);
    else
      view.next(outers[0], Depth);
  }

  // Aligned vectors, without a detour.
  __device__ __forceinline__ void copy(uint32_t stage) {
    typename View::Outer outer = outers[0];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (inner_moves) outer = outers[i];
      int64_t offset;
      const bool valid = view.at(outer, inner, offset);
      copy16(stage + Layout::offset(line + i * step, piece) * 2, data + (valid ? offset : 0),
             valid);
      if constexpr (!inner_moves) view.next(outer, step);
    }
    move_on();
  }

  // Element by element.
  __device__ __forceinline__ void gather(T* stage) {
    Vec<T, 8> v[count];
    typename View::Inner element = inner;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      typename View::Outer outer = outers[0];
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if constexpr (inner_moves) outer = outers[i];
        int64_t offset;
        v[i].v[e] = view.at(outer, element, offset) ? data[offset] : from_float<T>(0.f);
        if constexpr (!inner_moves) view.next(outer, step);
      }
      view.next(element, 1);
    }
#pragma unroll
    for (int i = 0; i < count; ++i)
      *reinterpret_cast<Vec<T, 8>*>(stage + Layout::offset(line + i * step, piece)) = v[i];
    move_on();
  }
};

// ---- from shared memory to registers ---------------------------------------------------------

// Fragments of 16 rows of operand a, from row `row` of the stage and step `k` (multiples of 16).
template <class Layout, K Where>
__device__ __forceinline__ void load_a(uint32_t (&r)[4], uint32_t stage, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (Where == K::inner) {
    const int line = lane % 16, piece = k / 8 + lane / 16;
    load_matrices<false>(r, stage + 2 * (row * Layout::width + Layout::offset(line, piece)));
  } else {
    const int line = lane % 8 + lane / 16 * 8, piece = row / 8 + lane / 8 % 2;
    load_matrices<true>(r, stage + 2 * (k * Layout::width + Layout::offset(line, piece)));
  }
}

// Fragments of 16 columns of operand b: r[0], r[1] for the first 8, r[2], r[3] for the others.
template <class Layout, K Where>
__device__ __forceinline__ void load_b(uint32_t (&r)[4], uint32_t stage, int col, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (Where == K::inner) {
    const int line = lane % 8 + lane / 16 * 8, piece = k / 8 + lane / 8 % 2;
    load_matrices<false>(r, stage + 2 * (col * Layout::width + Layout::offset(line, piece)));
  } else {
    const int line = lane % 16, piece = col / 8 + lane / 16;
    load_matrices<true>(r, stage + 2 * (k * Layout::width + Layout::offset(line, piece)));
  }
}

// ---- the kernel ------------------------------------------------------------------------------

// A warp's part of the result: fragments of 16 x 8.
template <class Tile>
struct WarpAccumulators {
  static constexpr int rows = Tile::warp_m / 16, cols = Tile::warp_n / 8;
  float v[rows][cols][4] = {};
};

// What a warp multiplies at once: 16 steps along k.
template <class Tile>
struct Fragments {
  uint32_t a[Tile::warp_m / 16][4], b[Tile::warp_n / 16][4];
};

// Those at `k` of a stage.
template <class Tile, class LayoutA, K WhereA, class LayoutB, K WhereB>
__device__ __forceinline__ void load_fragments(Fragments<Tile>& f, uint32_t stage, int k) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp / Tile::warps_n * Tile::warp_m, col = warp % Tile::warps_n * Tile::warp_n;
#pragma unroll
  for (int i = 0; i < Tile::warp_m / 16; ++i)
    load_a<LayoutA, WhereA>(f.a[i], stage, row + i * 16, k);
#pragma unroll
  for (int j = 0; j < Tile::warp_n / 16; ++j)
    load_b<LayoutB, WhereB>(f.b[j], stage + Tile::m * Tile::depth * 2, col + j * 16, k);
}

template <class T, class Tile>
__device__ __forceinline__ void multiply_fragments(WarpAccumulators<Tile>& sums,
                                                   const Fragments<Tile>& f) {
#pragma unroll
  for (int i = 0; i < Tile::warp_m / 16; ++i)
#pragma unroll
    for (int j = 0; j < Tile::warp_n / 8; ++j)
      mma<T>(sums.v[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
}

// 16 rows at a time through shared memory, so that a lane has 8 neighbours of a row.
template <class Tile, class View>
__device__ __forceinline__ void store_accumulators(const WarpAccumulators<Tile>& sums,
                                                   const GemmOutput& out, float* shared,
                                                   const View& a, int m0, int n0, int m_end) {
  constexpr int stride = Tile::epilogue_stride, pieces = Tile::warp_n / 8, rows = 32 / pieces;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* const part = shared + warp * 16 * stride;
  const int m = m0 + warp / Tile::warps_n * Tile::warp_m;
  const int in_warp = lane % pieces * 8;
  const int col = n0 + warp % Tile::warps_n * Tile::warp_n + in_warp;
  float bias[8];
  load_bias(out, col, bias);
#pragma unroll
  for (int i = 0; i < Tile::warp_m / 16; ++i) {
    __syncwarp();  // the rows before have been read
#pragma unroll
    for (int j = 0; j < Tile::warp_n / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<float2*>(part + (lane / 4 + h * 8) * stride + j * 8 + lane % 4 * 2) = {
            sums.v[i][j][h * 2], sums.v[i][j][h * 2 + 1]};
    __syncwarp();  // all 16 rows are there
#pragma unroll
    for (int r = 0; r < 16; r += rows) {
      const int row = r + lane / pieces;
      if (m + i * 16 + row >= m_end || col >= out.n) continue;
      float v[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] = part[row * stride + in_warp + e] + bias[e];
      store_row(out, a.out_row(m + i * 16 + row), col, v);
    }
  }
}

// Both operands' way through the ring of stages.
template <class T, class Tile, class A, K WhereA, class B, K WhereB, bool Vector>
struct Ring {
  using LayoutA = StageLayout<Tile::m, Tile::depth, WhereA>;
  using LayoutB = StageLayout<Tile::n, Tile::depth, WhereB>;
  static constexpr int stages = Tile::stages_of(arch);

  StageLoader<T, A, LayoutA, Tile::threads, Tile::depth, WhereA> load_a;
  StageLoader<T, B, LayoutB, Tile::threads, Tile::depth, WhereB> load_b;
  T* shared;
  uint32_t address;
  bool a_vector, b_vector;

  // Brings the next step in. Stages follow one another.
  __device__ __forceinline__ void load(int stage) {
    const int to_a = stage * Tile::stage_elements, to_b = to_a + Tile::m * Tile::depth;
    if (Vector || a_vector)
      load_a.copy(address + to_a * 2);
    else
      load_a.gather(shared + to_a);
    if (Vector || b_vector)
      load_b.copy(address + to_b * 2);
    else
      load_b.gather(shared + to_b);
  }
  __device__ __forceinline__ void fetch(Fragments<Tile>& f, int stage, int k) const {
    load_fragments<Tile, LayoutA, WhereA, LayoutB, WhereB>(
        f, address + stage * Tile::stage_elements * 2, k);
  }
  // The stage to come is there for all, and all have read the one before.
  __device__ __forceinline__ static void turn() {
    wait_copies<stages - 2>();
    __syncthreads();
  }
  __device__ __forceinline__ static int next(int stage) {
    return stage + 1 == stages ? 0 : stage + 1;
  }
  __device__ __forceinline__ static int before(int stage) {
    return stage == 0 ? stages - 1 : stage - 1;
  }
};

// Multiplies what is in the ring and brings the rest in.
template <class T, class Tile, class Ring>
__device__ __forceinline__ void multiply_in_order(WarpAccumulators<Tile>& sums, Ring& ring,
                                                  const Steps& steps) {
  int stage = 0;
  for (int step = steps.first; step < steps.last; ++step) {
    Ring::turn();
    if (step + Ring::stages - 1 < steps.last) ring.load(Ring::before(stage));
    commit_copies();
#pragma unroll
    for (int k = 0; k < Tile::depth; k += 16) {
      Fragments<Tile> f;
      ring.fetch(f, stage, k);
      multiply_fragments<T, Tile>(sums, f);
    }
    stage = Ring::next(stage);
  }
}

// The same with fragments read one part of a step ahead, for blocks that are alone on their
// SM.
template <class T, class Tile, class Ring>
__device__ __forceinline__ void multiply_pipelined(WarpAccumulators<Tile>& sums, Ring& ring,
                                                   const Steps& steps) {
  constexpr int parts = Tile::depth / 16;
  static_assert(parts % 2 == 0);
  Fragments<Tile> f[2];
  if (steps.first == steps.last) return;
  Ring::turn();
  ring.fetch(f[0], 0, 0);
  int stage = 0;
  for (int step = steps.first; step < steps.last; ++step) {
    if (step + Ring::stages - 1 < steps.last) ring.load(Ring::before(stage));
    commit_copies();
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      if (part + 1 == parts) {
        Ring::turn();
        stage = Ring::next(stage);
      }
      ring.fetch(f[(part + 1) % 2], stage, (part + 1) % parts * 16);
      multiply_fragments<T, Tile>(sums, f[part % 2]);
    }
  }
}

// The sums of `steps` along k. On return all of the block has read its shared memory.
template <class T, class Tile, K WhereA, K WhereB, bool Vector, class A, class B, class P>
__device__ __forceinline__ void multiply(WarpAccumulators<Tile>& sums, T* shared, const A& a,
                                         const B& b, const P& p, const BlockTile& at,
                                         const Steps& steps) {
  using Stages = Ring<T, Tile, A, WhereA, B, WhereB, Vector>;
  const int k = steps.first * Tile::depth;
  Stages ring{{a, p.a_data, at.m_tile * Tile::m, k},
              {b, p.b_data, at.n_tile * Tile::n, k},
              shared,
              shared_address(shared),
              p.a_vector,
              p.b_vector};
#pragma unroll
  for (int s = 0; s < Stages::stages - 1; ++s) {
    if (steps.first + s < steps.last) ring.load(s);
    commit_copies();
  }
  if constexpr (Tile::pipelined)
    multiply_pipelined<T>(sums, ring, steps);
  else
    multiply_in_order<T>(sums, ring, steps);
  wait_copies<0>();
  __syncthreads();
}

// Whether the architecture that is compiled for has the instructions and the shared memory.
template <class T, class Tile>
constexpr bool runs_here() {
  constexpr bool much_shared = arch == 80 || arch == 87 || (arch >= 90 && arch < 120);
  return (arch >= 80 || !std::is_same_v<T, __nv_bfloat16>)&&(Tile::m < 256 || much_shared);
}

// grid: a block for each tile, split and z (block_tile).  needs: with Vector, a_vector and
// b_vector. sums: f32.  deterministic: yes.  bf16 from sm_80 on.
template <class T, class Tile, class A, K WhereA, class B, K WhereB, bool Vector>
__global__ void __launch_bounds__(Tile::threads)
    gemm_tensor(const __grid_constant__ GemmParams<A, B> p) {
  begin();
  if constexpr (runs_here<T, Tile>()) {
    extern __shared__ uint4 shared[];
    const BlockTile at = block_tile(blockIdx.x, p.m_tiles, p.n_tiles, p.splits);
    const auto a = p.a.of(at.z);
    const auto b = p.b.of(at.z);
    const int m = WhereA == K::inner ? a.outers : a.inners;
    const int k = WhereA == K::inner ? a.inners : a.outers;
    if (at.m_tile * Tile::m >= m) return;  // phases of images differ in size
    WarpAccumulators<Tile> sums;
    multiply<T, Tile, WhereA, WhereB, Vector>(sums, reinterpret_cast<T*>(shared), a, b, p, at,
                                              steps_of(k, Tile::depth, at.split, p.splits));
    store_accumulators<Tile>(sums, output_of(p, at.split), reinterpret_cast<float*>(shared), a,
                             at.m_tile * Tile::m, at.n_tile * Tile::n, m);
  }
}

}  // namespace ebb::cuda
