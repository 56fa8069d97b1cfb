// The wgmma instruction of sm_90a for the widths that attention needs: d [64, N] += a [64, 16]
// b [16, N] over a warpgroup, a in shared memory or in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace ebb::cuda {

// d += a b, or d = a b if not `accumulate`. AT, BT: 1 if the rows of a's or b's tile are k.
template <class T, int N>
struct Wgmma;

// a in registers only.
template <class T>
struct Wgmma<T, 8> {
  template <int BT>
  __device__ static __forceinline__ void run(float (&d)[1][4], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %9, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3}, "
          "{%4,%5,%6,%7}, %8, p, 1, 1, %10; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %9, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, "
          "{%4,%5,%6,%7}, %8, p, 1, 1, %10; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
#endif
  }
};

// a in registers only.
template <class T>
struct Wgmma<T, 16> {
  template <int BT>
  __device__ static __forceinline__ void run(float (&d)[2][4], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %13, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
          "{%8,%9,%10,%11}, %12, p, 1, 1, %14; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %13, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
          "{%8,%9,%10,%11}, %12, p, 1, 1, %14; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
#endif
  }
};

template <class T>
struct Wgmma<T, 32> {
  template <int AT, int BT>
  __device__ static __forceinline__ void run(float (&d)[4][4], uint64_t a, uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
          "}, %16, %17, p, 1, 1, %19, %20; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
          "}, %16, %17, p, 1, 1, %19, %20; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
#endif
  }
  template <int BT>
  __device__ static __forceinline__ void run(float (&d)[4][4], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
          "}, {%16,%17,%18,%19}, %20, p, 1, 1, %22; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
          "}, {%16,%17,%18,%19}, %20, p, 1, 1, %22; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
#endif
  }
};

template <class T>
struct Wgmma<T, 40> {
  template <int AT, int BT>
  __device__ static __forceinline__ void run(float (&d)[5][4], uint64_t a, uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %22, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19"
          "}, %20, %21, p, 1, 1, %23, %24; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %22, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n40k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19"
          "}, %20, %21, p, 1, 1, %23, %24; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
#endif
  }
  template <int BT>
  __device__ static __forceinline__ void run(float (&d)[5][4], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %25, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19"
          "}, {%20,%21,%22,%23}, %24, p, 1, 1, %26; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %25, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n40k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19"
          "}, {%20,%21,%22,%23}, %24, p, 1, 1, %26; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
#endif
  }
};

template <class T>
struct Wgmma<T, 64> {
  template <int AT, int BT>
  __device__ static __forceinline__ void run(float (&d)[8][4], uint64_t a, uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31"
          "}, %32, %33, p, 1, 1, %35, %36; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31"
          "}, %32, %33, p, 1, 1, %35, %36; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
#endif
  }
  template <int BT>
  __device__ static __forceinline__ void run(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31"
          "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31"
          "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
#endif
  }
};

template <class T>
struct Wgmma<T, 72> {
  template <int AT, int BT>
  __device__ static __forceinline__ void run(float (&d)[9][4], uint64_t a, uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %38, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35"
          "}, %36, %37, p, 1, 1, %39, %40; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %38, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35"
          "}, %36, %37, p, 1, 1, %39, %40; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3])
          : "l"(a), "l"(b), "r"(accumulate), "n"(AT), "n"(BT));
#endif
  }
  template <int BT>
  __device__ static __forceinline__ void run(float (&d)[9][4], const uint32_t (&a)[4], uint64_t b,
                                             int accumulate) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (std::is_same_v<T, __half>)
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %41, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n72k16.f32.f16.f16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35"
          "}, {%36,%37,%38,%39}, %40, p, 1, 1, %42; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
    else
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, %41, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n72k16.f32.bf16.bf16 {"
          "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,"
          "%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35"
          "}, {%36,%37,%38,%39}, %40, p, 1, 1, %42; }"
          : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]),
            "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]),
            "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]),
            "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]),
            "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]),
            "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),
            "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(BT));
#endif
  }
};

}  // namespace ebb::cuda
