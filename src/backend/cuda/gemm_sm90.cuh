// The multiplying half of the kernel, its results' way out, and the launch; see
// gemm_sm90_kernel.cuh.
#pragma once

#include <algorithm>
#include <type_traits>

#include "backend/cuda/error.h"
#include "backend/cuda/gemm_sm90_kernel.cuh"
#include "backend/cuda/launch.h"

namespace ebb::cuda::gemm {

// ---- multiplying -------------------------------------------------------------------------------

template <class C>
using Sums = float[C::rows][C::columns / 2];

// Adds the products over one stage: 64 values of k.
template <class C>
__device__ void multiply(Sums<C>& d, uint32_t a, uint32_t b, bool fresh) {
  const uint64_t from_a = wgmma_operand(a), from_b = wgmma_operand(b);
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int i = 0; i < C::rows; ++i)
      wgmma<typename C::T, C::a_mn, C::b_mn>(d[i],
                                             from_a + (i * 8192 >> 4) + j * wgmma_next_k<C::a_mn>,
                                             from_b + j * wgmma_next_k<C::b_mn>, !fresh || j > 0);
}

// The sums are read by ordinary instructions only after this.
template <class C>
__device__ void settle(Sums<C>& d) {
  wgmma_wait<0>();
#pragma unroll
  for (int i = 0; i < C::rows; ++i)
#pragma unroll
    for (int j = 0; j < C::columns / 2; ++j) asm volatile("" : "+f"(d[i][j])::"memory");
}

// Tells the loading threads of all blocks that write to this stage that it may be overwritten.
template <class C>
__device__ void release(const Places<C>& s, const Params& p, int stage) {
  const unsigned thread = threadIdx.x % 128;
  if (p.share == Share::none) {
    if (thread == 0) barrier_arrive(s.empty(stage));
  } else if (thread < 2) {
    barrier_arrive_at(s.empty(stage), thread);
  }
}

template <class C>
__device__ void multiply_unit(const Params& p, const Places<C>& s, const Unit& u, Ring<C>& ring,
                              Sums<C>& d) {
  const int group = threadIdx.x / 128;
  const int a_skip = group / C::across_n * C::rows * 8192;
  const int b_skip = group % C::across_n * C::columns * 128;
  int before = -1;
  for (int step = u.first; step < u.last; ++step) {
    barrier_wait(s.full(ring.stage), ring.parity);
    wgmma_begin();
    multiply<C>(d, s.a(ring.stage) + a_skip, s.b(ring.stage) + b_skip, step == u.first);
    wgmma_commit();
    wgmma_wait<1>();
    if (before >= 0) release<C>(s, p, before);
    before = ring.stage;
    ring.next();
  }
  settle<C>(d);
  release<C>(s, p, before);
}

// ---- storing -----------------------------------------------------------------------------------

// Where a warp's part of the tile begins, and who we are. A thread holds, of each 8 columns, two
// neighbours in row lane / 4 and two in that row + 8.
template <class C>
struct Spot {
  int row, column, lane;
  __device__ explicit Spot(const Unit& u) {
    const int warp = threadIdx.x / 32, group = warp / 4;
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
// The bias of the thread's column of the tile: asked for before the products, used after.
template <class C>
__device__ float bias_of(const Params& p, const Unit& u) {
  static_assert(C::tile_n <= C::producer);
  const int i = threadIdx.x;
  return p.bias != nullptr && i < C::tile_n ? bias_element(p, u.n * C::tile_n + i) : 0;
}

template <class C>
__device__ void add_bias(uint32_t shared, const Unit& u, float mine, Sums<C>& d) {
  if (C::bias_turns == 1) barrier_of(1, C::producer);  // nobody reads the one before
  if (threadIdx.x < C::tile_n)
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + threadIdx.x * 4), "f"(mine) : "memory");
  barrier_of(1, C::producer);  // the bias is there
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

template <class T>
__device__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 v = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  } else {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
}

__device__ inline void store_matrices(uint32_t to, const uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

// 16 rows of C::chunk columns, whose sums are d[0..], into shared memory in the swizzle of boxes.
template <class C>
__device__ void stage_chunk(const float* d, uint32_t to) {
  const int lane = threadIdx.x % 32, row = lane % 16;
  constexpr int row_bytes = C::chunk * 2;
  const int turn = C::chunk == 64 ? row % 8 : row / 2 % 4;  // the swizzle: 16-byte units by xor
#pragma unroll
  for (int j = 0; j < C::chunk / 16; ++j) {
    uint32_t v[4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float* x = d + (2 * j + h) * 4;
      v[2 * h] = pack<typename C::T>(x[0], x[1]);
      v[2 * h + 1] = pack<typename C::T>(x[2], x[3]);
    }
    store_matrices(to + row * row_bytes + ((2 * j + lane / 16) ^ turn) * 16, v);
  }
}

// The same in f32, 32 columns.
template <class C>
__device__ void stage_floats(const float* d, uint32_t to) {
  const int lane = threadIdx.x % 32, row = lane / 4;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t at = to + row * 128 + ((2 * j + lane % 4 / 2) ^ row) * 16 + lane % 2 * 8;
#pragma unroll
    for (int h = 0; h < 2; ++h)
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + h * 1024), "f"(d[j * 4 + h * 2]),
                   "f"(d[j * 4 + h * 2 + 1])
                   : "memory");
  }
}

// Where the box at a row and column, counted as tiles count, goes.
template <class C>
__device__ BoxAt box_at(const Params& p, const Unit& u, int row, int column) {
  if (u.part >= 0) return {column - u.n * C::tile_n, row + (u.part - u.m) * C::tile_m, 0, 0};
  if constexpr (C::form != Form::wgrad) return {column, row, 0, u.batch};
  const int block = column / 64, tap = block / p.channel_blocks;
  return {(block - tap * p.channel_blocks) * 64 + column % 64, row, tap, u.batch};
}

template <class C, bool floats>
__device__ void store_boxes(const Params& p, const Places<C>& s, const Unit& u, const Sums<C>& d) {
  constexpr int width = floats ? 32 : C::chunk, boxes = C::columns / width;
  const Spot<C> at(u);
  const uint32_t out = s.out(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < C::rows; ++i)
#pragma unroll
    for (int c = 0; c < boxes; ++c) {
      const uint32_t buffer = out + (i * boxes + c) % C::buffers * C::buffer_bytes;
      if (at.lane == 0) store_wait_read<C::buffers - 1>();
      __syncwarp();  // the buffer's last box has left
      if constexpr (floats)
        stage_floats<C>(d[i] + c * width / 2, buffer);
      else
        stage_chunk<C>(d[i] + c * width / 2, buffer);
      fence_async();
      __syncwarp();  // all lanes have written
      if (at.lane == 0)
        store_box(u.part >= 0 ? p.parts : p.d, buffer,
                  box_at<C>(p, u, at.row + i * 64, at.column + c * width));
    }
}

// Runs through the columns that a thread stores, in eights. The columns of wgrad are taps of blocks
// of 64 channels, of which the last may be shorter.
template <class C>
struct Columns {
  int column, end;  // the thread's pair; the end of the row, or of the block
  int tap, block;
  __device__ Columns(const Params& p, const Spot<C>& at) : column(at.column), end(p.n) {
    if constexpr (C::form == Form::wgrad) {
      tap = at.column / 64 / p.channel_blocks;
      block = at.column / 64 - tap * p.channel_blocks;
      place(p);
    }
    column += at.lane % 4 * 2;
  }
  __device__ void place(const Params& p) {
    column = tap * p.channels + block * 64;
    end = tap < p.taps ? (tap + 1) * p.channels : 0;
  }
  __device__ void next(const Params& p, int j) {
    column += 8;
    if (C::form != Form::wgrad || j % 8 != 7) return;
    const int lane = column % 8;
    if (++block == p.channel_blocks) block = 0, ++tap;
    place(p);
    column += lane;
  }
};

// The tile straight from registers, with any size and alignment of rows.
template <class C, class T>
__device__ void store_elements(const Params& p, const Unit& u, const Sums<C>& d) {
  const Spot<C> at(u);
  T* out = static_cast<T*>(p.out) + u.batch * p.out_matrix;
#pragma unroll
  for (int i = 0; i < C::rows * 2; ++i) {
    const int row = at.row + i / 2 * 64 + i % 2 * 8 + at.lane / 4;
    if (row >= p.m) continue;
    T* to = out + static_cast<int64_t>(row) * p.n;
    Columns<C> c(p, at);
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j, c.next(p, j - 1)) {
      if (c.column >= c.end) continue;
      const float* x = &d[i / 2][j * 4 + i % 2 * 2];
      to[c.column] = from_float<T>(x[0]);
      if (c.column + 1 < c.end) to[c.column + 1] = from_float<T>(x[1]);
    }
  }
}

template <class C>
__device__ void store(const Params& p, const Places<C>& s, const Unit& u, const Sums<C>& d) {
  if (u.part >= 0 || p.store == Store::float_boxes) return store_boxes<C, true>(p, s, u, d);
  if (p.store == Store::floats) return store_elements<C, float>(p, u, d);
  if constexpr (C::form != Form::wgrad) {  // its results are f32
    if (p.store == Store::boxes) return store_boxes<C, false>(p, s, u, d);
    store_elements<C, typename C::T>(p, u, d);
  }
}

// What a multiplying warpgroup does.
template <class C>
__device__ void consume(const Params& p, const Places<C>& s) {
  const int cluster = p.share == Share::none ? 1 : 2, rank = static_cast<int>(cluster_rank());
  Ring<C> ring{.stage = 0, .parity = 0};
  Sums<C> d;
  const int count = gridDim.x / cluster;
  int turn = 0;
  for (int i = blockIdx.x / cluster; i < p.units; i += count, ++turn) {
    const Unit u = unit_at(p, i, rank);
    const float bias = bias_of<C>(p, u);
    multiply_unit<C>(p, s, u, ring, d);
    if (p.bias != nullptr && u.part < 0) add_bias<C>(s.bias(turn), u, bias, d);
    store<C>(p, s, u, d);
  }
  if (threadIdx.x % 32 == 0) store_wait();  // shared memory is read until then
}

// See the top of gemm_sm90_kernel.cuh.
// grid: blocks (or pairs) as many as fit; each takes every grid-th unit.
template <class C>
__global__ void __launch_bounds__(C::threads, C::per_multiprocessor)
    gemm_sm90(const __grid_constant__ Params p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const Places<C> s{shared_address(shared)};
  if (threadIdx.x == 0) {
    prefetch_map(p.a);
    prefetch_map(p.b);
    if (s.base % 1024 != 0) asm volatile("trap;");  // the swizzle counts from there
    const int cluster = p.share == Share::none ? 1 : 2;
    for (int i = 0; i < C::stages; ++i) {
      barrier_init(s.full(i), 1);
      barrier_init(s.empty(i), C::consumers * cluster);
    }
    barrier_init_done();
  }
  if (p.share == Share::none)
    __syncthreads();  // the barriers are there
  else
    cluster_sync();
  begin();
  if (threadIdx.x >= C::producer) {
    if constexpr (C::move_registers) fewer_registers<C::producer_registers>();
    if (threadIdx.x == C::producer) produce<C>(p, s);
  } else {
    if constexpr (C::move_registers) more_registers<C::consumer_registers>();
    consume<C>(p, s);
  }
  __syncwarp();
  if (p.share != Share::none) cluster_sync();  // a block's memory is written to until then
}

// ---- launching ---------------------------------------------------------------------------------

// buffers: 16 x 64 results that a warp can have on their way out.
template <int m_, int n_, int per_multiprocessor_ = 1, int buffers_ = 2 / per_multiprocessor_>
struct Tile {
  static constexpr int m = m_, n = n_, per_multiprocessor = per_multiprocessor_;
  static constexpr int buffers = buffers_ > 0 ? buffers_ : 1;
};

// The kernels of one form for operands of type T: one for each size of tile.
template <class T, Form form, class... Tiles>
struct Family {
  static Kernels kernels() {
    return {{TileSize{Tiles::m, Tiles::n, Tiles::per_multiprocessor,
                      Config<T, form, Tiles>::stages}...},
            run};
  }

 private:
  static void run(const Problem& p, const Choice& c, const Operands& o, CudaDevice& device) {
    const bool ran = ((c.tile_m == Tiles::m && c.tile_n == Tiles::n &&
                       launch_as<Config<T, form, Tiles>>(p, c, o, device)) ||
                      ...);
    require(ran, "gemm: no kernel for tiles of ", c.tile_m, "x", c.tile_n);
  }
  template <class C>
  static bool launch_as(const Problem& p, const Choice& c, const Operands& o, CudaDevice& device) {
    const Params params = params_of(p, c, o, C::chunk);
    const int cluster = c.share == Share::none ? 1 : 2;
    const int room = device.multiprocessors() * C::per_multiprocessor / cluster;
    launch("gemm_sm90", gemm_sm90<C>,
           {.grid = static_cast<unsigned>(std::min(params.units, room) * cluster),
            .block = C::threads,
            .shared = C::shared_bytes,
            .cluster = static_cast<unsigned>(cluster)},
           params, device);
    if (params.rest > 0) sum_parts(p, c, o, params, device);
    return true;
  }
};

}  // namespace ebb::cuda::gemm
