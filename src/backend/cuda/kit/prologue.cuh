// What device code shares: the start of a kernel, vectors in registers, sums over warps and blocks.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ebb::cuda {

// The first line of every kernel, before it touches memory: waits until the kernels before have
// finished and written. (Letting the next kernel in early, by launch_dependents, costs half a
// microsecond for each wave of blocks and was slower for all but the smallest grids.)
__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The address of shared memory as instructions take it.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// `Count` elements that load and store as one access.
template <class T, int Count>
struct alignas(sizeof(T) * Count) Vec {
  T v[Count];
};

template <class T>
__device__ __forceinline__ float to_float(T v) {
  return static_cast<float>(v);
}
template <class T>
__device__ __forceinline__ T from_float(float v) {
  return static_cast<T>(v);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ __forceinline__ __half from_float(float v) {
  return __float2half_rn(v);
}

// The sum over a warp, in every lane.
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
  return v;
}

// The sum over a block of `Threads`, in every thread. Call it from all of them.
template <int Threads>
__device__ __forceinline__ float block_sum(float v) {
  __shared__ float part[32];
  v = warp_sum(v);
  __syncthreads();  // part may still be read from the call before
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < Threads / 32 ? part[threadIdx.x % 32] : 0.f;
  return warp_sum(v);
}

}  // namespace ebb::cuda
