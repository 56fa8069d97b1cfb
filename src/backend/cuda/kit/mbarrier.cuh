// Asynchronous copies of sm_90: mbarriers in shared memory, TMA loads and stores, clusters.
// Addresses of shared memory are 32-bit; a block's own ones are valid in its cluster's window.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "backend/cuda/kit/prologue.cuh"

namespace ebb::cuda {

// ---- mbarriers ---------------------------------------------------------------------------------

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes the barriers visible to TMA and to the cluster; the threads that wait on them
// need a barrier of the block (or cluster) besides.
__device__ __forceinline__ void barrier_init_done() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives at the barrier at the same offset in a CTA of the cluster. Orders only what TMA and wgmma
// have done: a cluster-scope fence would cost more than a stage.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote]; }" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// Arrives, and has the barrier wait for `bytes` of copies too.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ bool barrier_try(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
// Waits for the end of the phase of this parity; writes of the CTA's threads and of TMA are visible
// after. A wait that never ends is a bug of the kernel: it becomes an error of the
// launch, by a write to address 0. (With a trap, all roles of a kernel end at one place, and ptxas
// gives none of them more registers than at launch, whatever setmaxnreg says.)
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  constexpr int never = 1 << 24;
  for (int i = 0; !barrier_try(barrier, parity); ++i)
    if (i == never) asm volatile("st.global.u32 [%0], %1;" ::"l"(uint64_t{0}), "r"(0) : "memory");
}

// Named barrier `id` (not 0) among `threads` threads of the block: sync waits, arrive does not.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- clusters ----------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// The index of this cluster in the grid, and their number; of thread blocks if without clusters.
__device__ __forceinline__ int cluster_index() {
  int index;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ int cluster_count() {
  int count;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}
// All threads of the cluster; memory written before is visible after.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// The same without ordering: does not wait for outstanding writes.
__device__ __forceinline__ void cluster_meet() {
  asm volatile(
      "barrier.cluster.arrive.relaxed.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// ---- copies ------------------------------------------------------------------------------------

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Where a load goes. With `blocks` other than 0 it goes to the same place in every block of the
// cluster whose bit is set, and each block's own barrier counts its bytes.
struct LoadTo {
  uint32_t to, barrier;
  uint16_t blocks;
};

// A box of a tensor of rank 3 at the coordinates x (innermost), y, z.
__device__ __forceinline__ void load_box(const LoadTo& l, const CUtensorMap& map, int x, int y,
                                         int z) {
  if (l.blocks == 0)
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(l.to),
        "l"(&map), "r"(l.barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(l.to),
        "l"(&map), "r"(l.barrier), "r"(x), "r"(y), "r"(z), "h"(l.blocks)
        : "memory");
}

// A box of a tensor of rank 4, for this block ...
struct BoxAt {
  int x, y, z, w;
};
__device__ __forceinline__ void load_box4(uint32_t to, uint32_t barrier, const CUtensorMap& map,
                                          const BoxAt& at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w)
      : "memory");
}
// ... and for several blocks.
__device__ __forceinline__ void load_box4_multicast(const LoadTo& l, const CUtensorMap& map,
                                                    const BoxAt& at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(l.to),
      "l"(&map), "r"(l.barrier), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w), "h"(l.blocks)
      : "memory");
}

// `bytes` from device memory, a multiple of 16 as both addresses are.
__device__ __forceinline__ void load_bytes(uint32_t to, uint32_t barrier, const void* from,
                                           uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// A pixel of an image and the tap of the filter that reads it.
struct Pixel {
  int w, h, n;    // of the filter's upper left corner; may be negative
  uint16_t s, r;  // offset of the tap along w and h
};

// Channels from `c` on, of the pixels from `at` on, through a map in im2col mode.
__device__ __forceinline__ void load_pixels(const LoadTo& l, const CUtensorMap& map, int c,
                                            const Pixel& at) {
  if (l.blocks == 0)
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(l.to),
        "l"(&map), "r"(l.barrier), "r"(c), "r"(at.w), "r"(at.h), "r"(at.n), "h"(at.s), "h"(at.r)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(l.to),
        "l"(&map), "r"(l.barrier), "r"(c), "r"(at.w), "r"(at.h), "r"(at.n), "h"(at.s), "h"(at.r),
        "h"(l.blocks)
        : "memory");
}

// Shared memory written by ordinary stores of this thread becomes readable for TMA and wgmma, after
// a barrier. (Kernels with it are compiled for other targets too where they are never run there.)
__device__ __forceinline__ void fence_async() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
// Stores a box of a tensor of rank 4; the part outside of the tensor is dropped.
__device__ __forceinline__ void store_box(const CUtensorMap& map, uint32_t from, const BoxAt& at) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(from), "r"(at.x), "r"(at.y), "r"(at.z), "r"(at.w)
      : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until all but the thread's last `Pending` stores have read their shared memory.
template <int Pending>
__device__ __forceinline__ void store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
// Waits until the thread's stores have been written.
__device__ __forceinline__ void store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// ---- the next kernel ---------------------------------------------------------------------------

// griddepcontrol.launch_dependents: thread blocks of the next kernel may become resident once all
// blocks of this grid have come here or ended; their begin() waits for the end of this kernel. For
// grids whose blocks are all co-resident: others would queue behind the next kernel's.
__device__ __forceinline__ void let_next_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- words that thread blocks wait for -----------------------------------------------------

// A word that another thread block stores with store_release: what was written before it there
// is visible after this.
__device__ __forceinline__ unsigned load_acquire(const unsigned* p) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void store_release(unsigned* p, unsigned v) {
  asm volatile("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v)
               : "memory");
}

// ---- registers ---------------------------------------------------------------------------------

// setmaxnreg: releases or acquires registers, for the full warpgroup.
template <int Count>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
template <int Count>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

}  // namespace ebb::cuda
