// The mainloop of the consumers, and the launch; see config.cuh.
#pragma once

#include <algorithm>

#include "backend/cuda/device/error.h"
#include "backend/cuda/device/launch.h"
#include "backend/cuda/gemm/sm90/producer.cuh"
#include "backend/cuda/gemm/sm90/row_sums.cuh"
#include "backend/cuda/gemm/sm90/split_k.cuh"

namespace ebb::cuda::gemm {

// ---- mainloop ---------------------------------------------------------------------------------

// A tile of rows of `RowBytes`, in its swizzle; MN-major ones are blocks as wide as a row, of 64
// values of k.
template <int RowBytes>
__device__ uint64_t tile_operand(uint32_t address) {
  return swizzled_operand<RowBytes>(address, 64 * RowBytes);
}
// The low words of descriptors: steps are added to them, the high words are constant. Warp-uniform
// values keep address arithmetic out of the MMA issue: with full descriptors computed by each
// thread, 64 values of k of a 64 x 64 tile took 400 clocks.
template <int RowBytes>
__device__ uint32_t source_at(uint32_t address) {
  return __shfl_sync(~0u, static_cast<uint32_t>(tile_operand<RowBytes>(address)), 0);
}
template <int RowBytes>
__device__ uint64_t operand_of(uint32_t source) {
  return tile_operand<RowBytes>(0) >> 32 << 32 | source;
}
struct Sources {
  uint32_t a, b;
};

// Accumulates one stage: 64 values of k.
template <class C>
__device__ void multiply(Accumulators<C>& d, const Sources& from, bool fresh) {
  constexpr uint32_t next_a = wgmma_next_k<C::a_mn>;
  constexpr uint32_t next_b = wgmma_next_k<C::b_mn, C::b_row_bytes>;
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int i = 0; i < C::rows; ++i)
      wgmma<typename C::T, C::a_mn, C::b_mn>(
          d[i], operand_of<128>(from.a + (i * 8192 >> 4) + j * next_a),
          operand_of<C::b_row_bytes>(from.b + j * next_b), !fresh || j > 0);
}

// Releases the stage to the producers of all CTAs that write to it.
template <class C>
__device__ void release(const SharedStorage<C>& s, const Params& p, int stage) {
  const unsigned thread = threadIdx.x % 128;
  if (p.multicast == Multicast::none) {
    if (thread == 0) barrier_arrive(s.empty(stage));
  } else if (thread < 2) {
    barrier_arrive_at(s.empty(stage), thread);
  }
}

// The ping-pong order barrier: consumers run their mainloops alternately. One that waited for a
// stage more than one cycle of the pipeline ahead would mistake an earlier phase for its own.
template <class C>
__device__ void order_wait() {
  if constexpr (C::ping_pong) named_barrier_sync(1 + C::math_groups + math_group<C>(), C::producer);
}
template <class C>
__device__ void order_arrive() {
  if constexpr (C::ping_pong)
    named_barrier_arrive(1 + C::math_groups + (math_group<C>() + 1) % C::math_groups, C::producer);
}

// `follows`, `goes_on`: there are work units before and after this one.
struct TileOrder {
  bool follows, goes_on;
};

// Returns the stage that is still being read: its MMAs are in flight.
template <class C>
__device__ int mainloop(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                        TileOrder turn, State& state, Accumulators<C>& d) {
  static_assert(C::math_groups <= 2);  // the order barriers are for two consumers
  if (turn.follows) order_wait<C>();
  const int group = math_thread<C>() / 128;
  const int a_skip = group / C::across_n * C::rows * 8192;
  const int b_skip = group % C::across_n * C::columns * 128;
  const Sources first{source_at<128>(s.a(0) + a_skip), source_at<C::b_row_bytes>(s.b(0) + b_skip)};
  int before = -1;
  for (int step = u.first; step < u.last; ++step) {
    barrier_wait(s.full(state.index), state.phase);
    const uint32_t skip = __shfl_sync(~0u, state.index, 0) * (C::stage_bytes >> 4);
    wgmma_fence();
    multiply<C>(d, {first.a + skip, first.b + skip}, step == u.first);
    wgmma_commit();
    wgmma_wait<1>();
    if (before >= 0) release<C>(s, p, before);
    before = state.index;
    state.advance();
  }
  if (turn.goes_on) order_arrive<C>();
  return before;
}

// ---- the kernel --------------------------------------------------------------------------------

// A consumer warpgroup.
template <class C>
__device__ void consume(const Params& p, const SharedStorage<C>& s, WorkUnits work_units) {
  State state{.stages = stages_of<C>(p)};
  Accumulators<C> d;
  int turn = -1;
  do {
    const WorkUnit& u = work_units.u;
    ++turn;
    if (C::ping_pong && turn % C::math_groups != math_group<C>()) {
      state.advance(u.last - u.first);
      continue;
    }
    const Bias<C> bias(p, u);
    if constexpr (C::loads_source)
      if (loads_source<C>(p, u)) prefetch_source<C>(p, u);
    const int last = mainloop<C>(p, s, u, {turn > 0, work_units.more(p)}, state, d);
    if constexpr (C::loads_source)
      if (loads_source<C>(p, u)) load_first_source<C>(p, s, u);
    wgmma_wait<0>();
    fence_accumulators(d);
    release<C>(s, p, last);
    if constexpr (C::can_cluster_split_k)
      if (p.cluster_split_k) return store_partial<C>(p, s, d);
    const bool scaled = C::scales && p.scale != nullptr;
    if constexpr (C::scales)
      if (scaled) add_bias_and_scale<C>(s, u, bias, d);
    if (p.bias != nullptr && u.partial < 0 && !scaled) add_bias<C>(s.bias(turn), u, bias, d);
    if constexpr (C::adds_row_residual)
      if (adds_row_residual<C>(p, u)) add_row_residual<C>(p, u, d);
    store<C>(p, s, u, d);
  } while (work_units.next(p));
}

// A CTA's shared memory may be accessed until the other CTAs of the cluster get here.
template <class C, bool multiplied>
__device__ void leave(const Params& p, const SharedStorage<C>& s) {
  WorkUnit u = {};
  if (multiplied && C::can_cluster_split_k && p.cluster_split_k) set_tile(p, cluster_index(), 0, u);
  __syncwarp();
  if (p.cluster > 1) cluster_sync();  // all partials are there, all barriers were arrived at
  if constexpr (C::can_cluster_split_k) {
    if (!p.cluster_split_k) return;
    if constexpr (multiplied) reduce_cluster<C>(p, s, u);
    __syncwarp();
    cluster_sync();  // reads of the others' shared memory are complete
  }
}

// Prefetches the CTA's share of an operand into L2, before griddepcontrol.wait: a kernel that still
// writes the operand writes to L2.
__device__ inline void prefetch_l2(const L2Prefetch& what) {
  const int64_t first = int64_t{what.bytes_per_cta} * blockIdx.x;
  if (first >= what.bytes) return;
  const auto bytes = static_cast<uint32_t>(::min(int64_t{what.bytes_per_cta}, what.bytes - first));
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(what.data + first), "r"(bytes)
               : "memory");
}

// See the top of config.cuh.
// grid: CTAs (or clusters) as many as are resident; each takes every grid-th work unit.
template <class C>
__global__ void __launch_bounds__(C::threads, C::ctas_per_sm)
    gemm_sm90(const __grid_constant__ typename C::Params p) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const SharedStorage<C> s{shared_address(shared)};
  if (threadIdx.x == 0) {
    prefetch_map(p.a);
    prefetch_map(p.b);
    if (s.base % 1024 != 0) asm volatile("trap;");  // the swizzle is relative to it
    const int sharing = p.multicast == Multicast::none ? 1 : 2;
    const int summers = p.row_sums != nullptr ? C::sum_warps : 0;
    for (int i = 0; i < stages_of<C>(p); ++i) {
      barrier_init(s.full(i), 1);
      barrier_init(s.empty(i), (C::groups + summers) * sharing);
    }
    barrier_init_done();
  }
  if (threadIdx.x == 32) {
    prefetch_l2(p.prefetch_a);
    prefetch_l2(p.prefetch_b);
  }
  if (p.multicast == Multicast::none)
    __syncthreads();  // the barriers are there
  else
    cluster_meet();
  const WorkUnits work_units(p);
  begin();
  if (threadIdx.x >= C::producer) {
    if constexpr (C::move_registers) fewer_registers<C::producer_registers>();
    if (threadIdx.x == C::producer) produce<C>(p, s, work_units);
    if constexpr (C::sum_warps > 0)
      if (p.row_sums != nullptr) sum_rows<C>(p, s, work_units);
    leave<C, false>(p, s);
  } else {
    if constexpr (C::move_registers) more_registers<C::consumer_registers>();
    consume<C>(p, s, work_units);
    leave<C, true>(p, s);
  }
}

// ---- launching ---------------------------------------------------------------------------------

// buffers: staging buffers of 16 x 64 results per warp.
template <int m_, int n_, int ctas_per_sm_ = 1, int buffers_ = 2 / ctas_per_sm_,
          bool ping_pong_ = false>
struct Tile {
  static constexpr int m = m_, n = n_, ctas_per_sm = ctas_per_sm_;
  static constexpr bool ping_pong = ping_pong_, sums = false;
  static constexpr int buffers = buffers_ > 0 ? buffers_ : 1;
};

// Two consumer warpgroups; see Choice::ping_pong.
template <int m, int n>
using PingPong = Tile<m, n, 1, 2, true>;

// A tile whose accumulators take further products (Problem::more_k).
template <class T>
struct Summed : T {
  static constexpr bool sums = true;
};

// The kernels of one form for operands of type T: one for each tile size.
template <class T, Form form, class... Tiles>
struct Family {
  static Kernels kernels() {
    return {
        {TileSize{Tiles::m, Tiles::n, Tiles::ctas_per_sm, Config<T, form, Tiles>::stages,
                  Tiles::ping_pong, Config<T, form, Tiles>::can_cluster_split_k,
                  Config<T, form, Tiles>::loads_source, Config<T, form, Tiles>::adds_row_residual,
                  Config<T, form, Tiles>::scales, Config<T, form, Tiles>::one_cta_stages}...},
        run};
  }

 private:
  // CTAs with one work unit need no more stages than it has steps, and leave more shared memory to
  // the next kernel.
  template <class C>
  static int stages(const Choice& c, const Params& p, int at_once) {
    if (!C::flexible) return C::stages;
    const int most = c.one_cta_per_sm ? C::one_cta_stages : C::stages;
    const int longest =
        p.data_parallel > 0 ? p.steps : p.split_steps + (p.longer_splits > 0 ? 1 : 0);
    const int parts = c.cluster_split_k ? (C::tile_m * C::tile_n * 4 - 1) / C::stage_bytes + 1 : 1;
    return at_once < p.work_units ? most : std::min(most, std::max(longest, parts));
  }
  static void run(const Problem& p, const Choice& c, const Operands& o, CudaDevice& device) {
    const bool ran =
        ((c.tile_m == Tiles::m && c.tile_n == Tiles::n && c.ping_pong == Tiles::ping_pong &&
          launch_as<Config<T, form, Tiles>>(p, c, o, device)) ||
         ...);
    require(ran, "gemm: no kernel for tiles of ", c.tile_m, "x", c.tile_n);
  }
  template <class C>
  static bool launch_as(const Problem& p, const Choice& c, const Operands& o, CudaDevice& device) {
    auto params = [&] {
      if constexpr (C::sums)
        return sum_params_of(p, c, o);
      else
        return params_of(p, c, o);
    }();
    const int cluster = params.cluster;
    const int room = device.sm_count() * (c.one_cta_per_sm ? 1 : C::ctas_per_sm);
    const int at_once =
        c.cluster_split_k ? params.work_units : std::min(params.work_units, room / cluster);
    params.stages = stages<C>(c, params, at_once);
    set_l2_prefetch(params, p, o, at_once * cluster);
    launch("gemm_sm90", gemm_sm90<C>,
           {.grid = static_cast<unsigned>(at_once * cluster),
            .block = C::threads,
            .shared = C::first_stage + params.stages * C::stage_bytes,
            .cluster = static_cast<unsigned>(cluster)},
           params, device);
    if ((params.rest.by > 0 && !c.cluster_split_k) || p.row_sums)
      reduce_split_k(p, c, o, params, device);
    return true;
  }
};

}  // namespace ebb::cuda::gemm
