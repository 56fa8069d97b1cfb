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
template <class C>
__device__ void add_bias(const Params& p, const Unit& u, Sums<C>& d) {
  if (p.bias == nullptr) return;
  const Spot<C> at(u);
#pragma unroll
  for (int j = 0; j < C::columns / 8; ++j) {
    const int column = at.column + j * 8 + at.lane % 4 * 2;
    const float x = bias_element(p, column), y = bias_element(p, column + 1);
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

template <class C>
__device__ void store_boxes(const Params& p, const Places<C>& s, const Unit& u, const Sums<C>& d) {
  const Spot<C> at(u);
  const uint32_t out = s.out(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < C::rows; ++i)
#pragma unroll
    for (int c = 0; c < C::columns / C::chunk; ++c) {
      const uint32_t buffer =
          out + (i * (C::columns / C::chunk) + c) % C::buffers * C::buffer_bytes;
      if (at.lane == 0) store_wait_read<C::buffers - 1>();
      __syncwarp();  // the buffer's last box has left
      stage_chunk<C>(d[i] + c * C::chunk / 2, buffer);
      fence_async();
      __syncwarp();  // all lanes have written
      if (at.lane == 0) store_box(p.d, buffer, at.column + c * C::chunk, at.row + i * 64, u.batch);
    }
}

template <class T>
__device__ void store_pair(const Params& p, T* to, float2 v, bool two) {
  if (p.store == Store::float_pairs) {
    *reinterpret_cast<float2*>(to) = v;
  } else {
    to[0] = from_float<T>(v.x);
    if (two) to[1] = from_float<T>(v.y);
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
  T* out = static_cast<T*>(p.out) + u.split * p.out_split + u.batch * p.out_matrix;
#pragma unroll
  for (int i = 0; i < C::rows * 2; ++i) {
    const int row = at.row + i / 2 * 64 + i % 2 * 8 + at.lane / 4;
    if (row >= p.m) continue;
    T* to = out + static_cast<int64_t>(row) * p.row;
    Columns<C> c(p, at);
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j, c.next(p, j - 1)) {
      if (c.column >= c.end) continue;
      const float* x = &d[i / 2][j * 4 + i % 2 * 2];
      store_pair<T>(p, to + c.column, {x[0], x[1]}, c.column + 1 < c.end);
    }
  }
}

// What a multiplying warpgroup does.
template <class C>
__device__ void consume(const Params& p, const Places<C>& s) {
  const int cluster = p.share == Share::none ? 1 : 2, rank = static_cast<int>(cluster_rank());
  Ring<C> ring{.stage = 0, .parity = 0};
  Sums<C> d;
  const int count = gridDim.x / cluster;
  for (int i = blockIdx.x / cluster; i < p.units; i += count) {
    const Unit u = unit_at(p, i, rank);
    multiply_unit<C>(p, s, u, ring, d);
    if constexpr (C::form != Form::wgrad) add_bias<C>(p, u, d);
    if (C::form != Form::wgrad && p.store == Store::boxes)
      store_boxes<C>(p, s, u, d);
    else if (C::form != Form::wgrad && p.store == Store::elements)
      store_elements<C, typename C::T>(p, u, d);
    else
      store_elements<C, float>(p, u, d);
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

template <int m_, int n_, int per_multiprocessor_ = 1>
struct Tile {
  static constexpr int m = m_, n = n_, per_multiprocessor = per_multiprocessor_;
};

// The kernels of one form for operands of type T: one for each size of tile.
template <class T, Form form, class... Tiles>
struct Family {
  static Kernels kernels() {
    return {{TileSize{Tiles::m, Tiles::n, Tiles::per_multiprocessor}...}, run};
  }

 private:
  static void run(const Problem& p, const Choice& c, const Operands& o, CudaDevice& device) {
    const bool ran = ((c.tile_m == Tiles::m && c.tile_n == Tiles::n &&
                       launch_as<Config<T, form, Tiles::m, Tiles::n, Tiles::per_multiprocessor>>(
                           p, c, o, device)) ||
                      ...);
    require(ran, "gemm: no kernel for tiles of ", c.tile_m, "x", c.tile_n);
    if (c.splits > 1) sum_parts(p, c, o, device);
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
    return true;
  }
};

}  // namespace ebb::cuda::gemm
