// GEMMs of 16-bit operands on tensor cores (mma.sync): c[m, n] = sum over k of a[m, k] b[n, k]
// (+ bias[n]), for operands described by views (views.cuh). f32 accumulators.
#pragma once

#include "backend/cuda/gemm/general/common.cuh"
#include "backend/cuda/gemm/general/views.cuh"
#include "backend/cuda/kit/mma.cuh"

namespace ebb::cuda {

// A thread block computes M x N by WarpsM x WarpsN warps, Depth of k per stage; Pipelined:
// multiply_pipelined.
template <int M, int N, int WarpsM, int WarpsN, int Depth, int Stages, bool Pipelined = false>
struct TensorTile {
  static constexpr bool pipelined = Pipelined;
  static constexpr int m = M, n = N, depth = Depth;
  static constexpr int warps_n = WarpsN;
  static constexpr int threads = WarpsM * WarpsN * 32;
  static constexpr int warp_m = M / WarpsM, warp_n = N / WarpsN;
  static constexpr int stage_elements = (M + N) * Depth;
  // Before sm_80 there is no cp.async: two stages.
  static constexpr int stages_of(int architecture) { return architecture >= 80 ? Stages : 2; }
  static constexpr int epilogue_stride = warp_n + 8;  // floats; spreads rows over the banks
  static constexpr int epilogue_bytes = WarpsM * WarpsN * 16 * epilogue_stride * 4;
  static constexpr int shared_bytes(int architecture) {
    const int ring = stages_of(architecture) * stage_elements * 2;
    return ring > epilogue_bytes ? ring : epilogue_bytes;
  }
};

// ---- from device memory to shared memory ------------------------------------------------------

// One operand of a stage: `lines` of `width` elements that are contiguous in device memory. The
// 16-byte chunks of a line are swizzled (xor), so that ldmatrix, which reads 8 lines at once, has
// no bank conflicts.
template <int Rows, int Depth, K Where>
struct StageLayout {
  static constexpr int lines = Where == K::inner ? Rows : Depth;
  static constexpr int width = Where == K::inner ? Depth : Rows;
  static constexpr int chunks = width / 8;
  static_assert(chunks >= 4);
  __host__ __device__ static constexpr int swizzle(int line) {
    return chunks == 4 ? (line >> 1) & 3 : line & 7;
  }
  // Element offset of a chunk.
  __host__ __device__ static constexpr int offset(int line, int chunk) {
    return line * width + (chunk ^ swizzle(line)) * 8;
  }
};

// Loads one operand, stage after stage. A thread has the same chunk of every `step`-th line.
template <class T, class View, class Layout, int Threads, int Depth, K Where>
struct StageLoader {
  static constexpr int step = Threads / Layout::chunks, count = Layout::lines / step;
  static_assert(step * Layout::chunks == Threads && count * step == Layout::lines);
  static constexpr bool inner_moves = Where == K::inner;

  const View& view;
  const T* data;
  int line, chunk;
  // Of each line; or, where lines are steps along k, of the first line only.
  typename View::Outer outers[inner_moves ? count : 1];
  typename View::Inner inner;

  // From `first` on along the index that is not k, and `k`.
  __device__ __forceinline__ StageLoader(const View& v, const void* d, int first, int k)
      : view(v),
        data(static_cast<const T*>(d)),
        line(static_cast<int>(threadIdx.x) / Layout::chunks),
        chunk(static_cast<int>(threadIdx.x) % Layout::chunks) {
    inner = view.inner((inner_moves ? k : first) + chunk * 8);
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

  // Aligned vectors, by cp.async.
  __device__ __forceinline__ void copy(uint32_t stage) {
    typename View::Outer outer = outers[0];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      if constexpr (inner_moves) outer = outers[i];
      int64_t offset;
      const bool valid = view.at(outer, inner, offset);
      copy16(stage + Layout::offset(line + i * step, chunk) * 2, data + (valid ? offset : 0),
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
      *reinterpret_cast<Vec<T, 8>*>(stage + Layout::offset(line + i * step, chunk)) = v[i];
    move_on();
  }
};

// ---- from shared memory to registers ---------------------------------------------------------

// Fragments of 16 rows of operand a, from row `row` of the stage and step `k` (multiples of 16).
template <class Layout, K Where>
__device__ __forceinline__ void load_a(uint32_t (&r)[4], uint32_t stage, int row, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (Where == K::inner) {
    const int line = lane % 16, chunk = k / 8 + lane / 16;
    load_matrices<false>(r, stage + 2 * (row * Layout::width + Layout::offset(line, chunk)));
  } else {
    const int line = lane % 8 + lane / 16 * 8, chunk = row / 8 + lane / 8 % 2;
    load_matrices<true>(r, stage + 2 * (k * Layout::width + Layout::offset(line, chunk)));
  }
}

// Fragments of 16 columns of operand b: r[0], r[1] for the first 8, r[2], r[3] for the others.
template <class Layout, K Where>
__device__ __forceinline__ void load_b(uint32_t (&r)[4], uint32_t stage, int col, int k) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if constexpr (Where == K::inner) {
    const int line = lane % 8 + lane / 16 * 8, chunk = k / 8 + lane / 8 % 2;
    load_matrices<false>(r, stage + 2 * (col * Layout::width + Layout::offset(line, chunk)));
  } else {
    const int line = lane % 16, chunk = col / 8 + lane / 16;
    load_matrices<true>(r, stage + 2 * (k * Layout::width + Layout::offset(line, chunk)));
  }
}

// ---- the kernel ------------------------------------------------------------------------------

// A warp's accumulators: fragments of 16 x 8.
template <class Tile>
struct WarpAccumulators {
  static constexpr int rows = Tile::warp_m / 16, cols = Tile::warp_n / 8;
  float v[rows][cols][4] = {};
};

// A warp's operands for 16 steps along k.
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
__device__ __forceinline__ void multiply_fragments(WarpAccumulators<Tile>& acc,
                                                   const Fragments<Tile>& f) {
#pragma unroll
  for (int i = 0; i < Tile::warp_m / 16; ++i)
#pragma unroll
    for (int j = 0; j < Tile::warp_n / 8; ++j)
      mma<T>(acc.v[i][j], f.a[i], f.b[j / 2][j % 2 * 2], f.b[j / 2][j % 2 * 2 + 1]);
}

// The epilogue: 16 rows at a time through shared memory, so that a lane has 8 consecutive columns.
template <class Tile, class View>
__device__ __forceinline__ void store_accumulators(const WarpAccumulators<Tile>& acc,
                                                   const GemmOutput& out, float* shared,
                                                   const View& a, int m0, int n0, int m_end) {
  constexpr int stride = Tile::epilogue_stride, chunks = Tile::warp_n / 8, rows = 32 / chunks;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* const warp_tile = shared + warp * 16 * stride;
  const int m = m0 + warp / Tile::warps_n * Tile::warp_m;
  const int in_warp = lane % chunks * 8;
  const int col = n0 + warp % Tile::warps_n * Tile::warp_n + in_warp;
  float bias[8];
  load_bias(out, col, bias);
#pragma unroll
  for (int i = 0; i < Tile::warp_m / 16; ++i) {
    __syncwarp();  // the previous rows have been read
#pragma unroll
    for (int j = 0; j < Tile::warp_n / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<float2*>(warp_tile + (lane / 4 + h * 8) * stride + j * 8 +
                                   lane % 4 * 2) = {acc.v[i][j][h * 2], acc.v[i][j][h * 2 + 1]};
    __syncwarp();  // all 16 rows are there
#pragma unroll
    for (int r = 0; r < 16; r += rows) {
      const int row = r + lane / chunks;
      if (m + i * 16 + row >= m_end || col >= out.n) continue;
      float v[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) v[e] = warp_tile[row * stride + in_warp + e] + bias[e];
      store_row(out, a.out_row(m + i * 16 + row), col, v);
    }
  }
}

// The circular buffer of stages for both operands.
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

  // Loads the next step into a stage.
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
  // Waits for the next stage; the previous one is free then.
  __device__ __forceinline__ static void wait_stage() {
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

// Main loop: multiplies one stage while later ones are loaded.
template <class T, class Tile, class Ring>
__device__ __forceinline__ void multiply_in_order(WarpAccumulators<Tile>& acc, Ring& ring,
                                                  const Steps& steps) {
  int stage = 0;
  for (int step = steps.first; step < steps.last; ++step) {
    Ring::wait_stage();
    if (step + Ring::stages - 1 < steps.last) ring.load(Ring::before(stage));
    commit_copies();
#pragma unroll
    for (int k = 0; k < Tile::depth; k += 16) {
      Fragments<Tile> f;
      ring.fetch(f, stage, k);
      multiply_fragments<T, Tile>(acc, f);
    }
    stage = Ring::next(stage);
  }
}

// The same with register double buffering: fragments are loaded 16 steps of k ahead, for one thread
// block per SM.
template <class T, class Tile, class Ring>
__device__ __forceinline__ void multiply_pipelined(WarpAccumulators<Tile>& acc, Ring& ring,
                                                   const Steps& steps) {
  constexpr int k_steps = Tile::depth / 16;
  static_assert(k_steps % 2 == 0);
  Fragments<Tile> f[2];
  if (steps.first == steps.last) return;
  Ring::wait_stage();
  ring.fetch(f[0], 0, 0);
  int stage = 0;
  for (int step = steps.first; step < steps.last; ++step) {
    if (step + Ring::stages - 1 < steps.last) ring.load(Ring::before(stage));
    commit_copies();
#pragma unroll
    for (int k_step = 0; k_step < k_steps; ++k_step) {
      if (k_step + 1 == k_steps) {
        Ring::wait_stage();
        stage = Ring::next(stage);
      }
      ring.fetch(f[(k_step + 1) % 2], stage, (k_step + 1) % k_steps * 16);
      multiply_fragments<T, Tile>(acc, f[k_step % 2]);
    }
  }
}

// Accumulates `steps` along k. On return the thread block no longer reads shared memory.
template <class T, class Tile, K WhereA, K WhereB, bool Vector, class A, class B, class P>
__device__ __forceinline__ void multiply(WarpAccumulators<Tile>& acc, T* shared, const A& a,
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
    multiply_pipelined<T>(acc, ring, steps);
  else
    multiply_in_order<T>(acc, ring, steps);
  wait_copies<0>();
  __syncthreads();
}

// Whether the target architecture has the instructions and the shared memory.
template <class T, class Tile>
constexpr bool runs_here() {
  constexpr bool much_shared = arch == 80 || arch == 87 || (arch >= 90 && arch < 120);
  return (arch >= 80 || !std::is_same_v<T, __nv_bfloat16>)&&(Tile::m < 256 || much_shared);
}

// grid: a thread block per tile, split and z (block_tile).  needs: with Vector, a_vector and
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
    WarpAccumulators<Tile> acc;
    multiply<T, Tile, WhereA, WhereB, Vector>(acc, reinterpret_cast<T*>(shared), a, b, p, at,
                                              steps_of(k, Tile::depth, at.split, p.splits));
    store_accumulators<Tile>(acc, output_of(p, at.split), reinterpret_cast<float*>(shared), a,
                             at.m_tile * Tile::m, at.n_tile * Tile::n, m);
  }
}

}  // namespace ebb::cuda
