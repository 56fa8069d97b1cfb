// wgmma: the matrix instruction of sm_90a; d[64, N] += a[64, 16] b[16, N] over a warpgroup. b lies
// in shared memory behind a descriptor, a too or in registers; N is twice the number of d's
// registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ebb::cuda {

// ---- operands in shared memory -----------------------------------------------------------------

// A matrix descriptor. `layout`: 0 without a swizzle; 1, 2 and 3 with one of 128, 64 and 32 bytes.
// `leading` and `stride` are the byte offsets of the PTX ISA's names.
__device__ __forceinline__ uint64_t matrix_descriptor(uint64_t layout, uint32_t address,
                                                      uint32_t leading, uint32_t stride) {
  return layout << 62 | uint64_t{stride >> 4} << 32 | uint64_t{leading >> 4} << 16 |
         (address & 0x3ffff) >> 4;
}

// A tile as TMA writes it: rows of `RowBytes`, which is the swizzle too. `address` is a multiple of
// eight rows but for steps along k. K-major: a row holds values of k, one row for each value of m
// or n; `next` is ignored. MN-major: a row holds values of m or n, one row for each value of k, and
// the next values of m or n are `next` bytes further on.
template <int RowBytes = 128>
__device__ __forceinline__ uint64_t swizzled_operand(uint32_t address, uint32_t next) {
  static_assert(RowBytes == 128 || RowBytes == 64 || RowBytes == 32);
  constexpr uint64_t layout = RowBytes == 128 ? 1 : RowBytes == 64 ? 2 : 3;
  return matrix_descriptor(layout, address, next, 8 * RowBytes);
}
// What to add to its descriptor for the next 16 values of k.
template <int Mn, int RowBytes = 128>
inline constexpr uint64_t wgmma_next_k = (Mn ? 16 * RowBytes : 16 * 2) >> 4;

// ---- order -------------------------------------------------------------------------------------

// Kernels with these instructions are compiled for other targets too where they are never run
// there.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define EBB_SM90_ASM(...) asm volatile(__VA_ARGS__)
#else
#define EBB_SM90_ASM(...)
#endif

// The instructions after it see registers that were written before. Shared memory that ordinary
// stores wrote needs fence_async() too.
__device__ __forceinline__ void wgmma_fence() {
  EBB_SM90_ASM("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  EBB_SM90_ASM("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most `Pending` committed groups are unfinished.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  EBB_SM90_ASM("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Keeps the compiler from moving uses of registers that wgmma reads or writes across this point.
template <int N>
__device__ __forceinline__ void fence_accumulators(float (&d)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])::"memory");
}
template <int N>
__device__ __forceinline__ void fence_accumulators(uint32_t (&a)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+r"(a[n][0]), "+r"(a[n][1]), "+r"(a[n][2]), "+r"(a[n][3])::"memory");
}
template <int P, int N>
__device__ __forceinline__ void fence_accumulators(float (&d)[P][N][4]) {
#pragma unroll
  for (int p = 0; p < P; ++p) fence_accumulators(d[p]);
}
template <int P, int R>
__device__ __forceinline__ void fence_accumulators(float (&d)[P][R]) {
  static_assert(R % 4 == 0);
  fence_accumulators(reinterpret_cast<float(&)[P * R / 4][4]>(d));
}

// This thread's warpgroup, warp-uniform for the compiler.
__device__ __forceinline__ int warpgroup() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

// ---- the instruction ---------------------------------------------------------------------------

// The type of the operands, by its name in the instruction.
template <class T>
extern const char wgmma_type[];
template <>
inline constexpr char wgmma_type<__nv_bfloat16>[] = "bf16";
template <>
inline constexpr char wgmma_type<__half>[] = "f16";

// clang-format off
// The widths of d, each with the numbers of the operands behind d's registers in the instruction.
#define EBB_WIDTHS(X) \
  X(8, 4, 5, 6, 7, 8, 9, 10, 11) \
  X(16, 8, 9, 10, 11, 12, 13, 14, 15) \
  X(32, 16, 17, 18, 19, 20, 21, 22, 23) \
  X(40, 20, 21, 22, 23, 24, 25, 26, 27) \
  X(64, 32, 33, 34, 35, 36, 37, 38, 39) \
  X(72, 36, 37, 38, 39, 40, 41, 42, 43) \
  X(80, 40, 41, 42, 43, 44, 45, 46, 47) \
  X(96, 48, 49, 50, 51, 52, 53, 54, 55) \
  X(112, 56, 57, 58, 59, 60, 61, 62, 63) \
  X(128, 64, 65, 66, 67, 68, 69, 70, 71) \
  X(160, 80, 81, 82, 83, 84, 85, 86, 87) \
  X(176, 88, 89, 90, 91, 92, 93, 94, 95) \
  X(192, 96, 97, 98, 99, 100, 101, 102, 103) \
  X(256, 128, 129, 130, 131, 132, 133, 134, 135)
// The numbers of d's registers, without 0; each list goes on where the one before it ends.
#define EBB_D8(X) X(1) X(2) X(3)
#define EBB_D16(X) EBB_D8(X) X(4) X(5) X(6) X(7)
#define EBB_D32(X) EBB_D16(X) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define EBB_D40(X) EBB_D32(X) X(16) X(17) X(18) X(19)
#define EBB_D64(X) EBB_D40(X) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) \
  X(31)
#define EBB_D72(X) EBB_D64(X) X(32) X(33) X(34) X(35)
#define EBB_D80(X) EBB_D72(X) X(36) X(37) X(38) X(39)
#define EBB_D96(X) EBB_D80(X) X(40) X(41) X(42) X(43) X(44) X(45) X(46) X(47)
#define EBB_D112(X) EBB_D96(X) X(48) X(49) X(50) X(51) X(52) X(53) X(54) X(55)
#define EBB_D128(X) EBB_D112(X) X(56) X(57) X(58) X(59) X(60) X(61) X(62) X(63)
#define EBB_D160(X) EBB_D128(X) X(64) X(65) X(66) X(67) X(68) X(69) X(70) X(71) X(72) X(73) X(74) \
  X(75) X(76) X(77) X(78) X(79)
#define EBB_D176(X) EBB_D160(X) X(80) X(81) X(82) X(83) X(84) X(85) X(86) X(87)
#define EBB_D192(X) EBB_D176(X) X(88) X(89) X(90) X(91) X(92) X(93) X(94) X(95)
#define EBB_D256(X) EBB_D192(X) X(96) X(97) X(98) X(99) X(100) X(101) X(102) X(103) X(104) X(105) \
  X(106) X(107) X(108) X(109) X(110) X(111) X(112) X(113) X(114) X(115) X(116) X(117) X(118) \
  X(119) X(120) X(121) X(122) X(123) X(124) X(125) X(126) X(127)
// clang-format on
#define EBB_NAME(i) ",%" #i
#define EBB_REGISTER(i) , "+f"(d[i])

// The instruction. x0 to x3: the numbers of b and what follows it; `a` and `a_mn`: how it names a's
// operands, which come last.
#define EBB_WGMMA(n, x0, x1, x2, x3, a, a_mn, ...)                                          \
  EBB_SM90_ASM("{ .reg .pred p; setp.ne.b32 p, %" #x1                                       \
               ", 0;\n"                                                                     \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.%" #x3 ".%" #x3              \
               " {%0" EBB_D##n(EBB_NAME) "}, " a ", %" #x0 ", p, 1, 1, " a_mn "%" #x2 "; }" \
               : "+f"(d[0])EBB_D##n(EBB_REGISTER)                                           \
               : "l"(b), "r"(accumulate), "n"(BMn), "C"(wgmma_type<T>), __VA_ARGS__)

// d += a b, or d = a b if not `accumulate`. AMn, BMn: 1 if the operand is MN-major.
template <class T, int AMn, int BMn, int R>
__device__ __forceinline__ void wgmma(float (&d)[R], uint64_t a, uint64_t b, int accumulate) {
#define EBB_OF_WIDTH(n, x0, x1, x2, x3, x4, x5, x6, x7)                    \
  else if constexpr (2 * R == n) {                                         \
    EBB_WGMMA(n, x0, x1, x2, x3, "%" #x4, "%" #x5 ", ", "l"(a), "n"(AMn)); \
  }
  if constexpr (R == 0) {
  }
  EBB_WIDTHS(EBB_OF_WIDTH)
  else static_assert(R == 0, "d has no such width");
#undef EBB_OF_WIDTH
}
// a in registers, as the accumulators of 16 columns lie once they are rounded to 16 bits.
template <class T, int BMn, int R>
__device__ __forceinline__ void wgmma(float (&d)[R], const uint32_t (&a)[4], uint64_t b,
                                      int accumulate) {
#define EBB_OF_WIDTH(n, x0, x1, x2, x3, x4, x5, x6, x7)                                  \
  else if constexpr (2 * R == n) {                                                       \
    EBB_WGMMA(n, x0, x1, x2, x3, "{%" #x4 ",%" #x5 ",%" #x6 ",%" #x7 "}", "", "r"(a[0]), \
              "r"(a[1]), "r"(a[2]), "r"(a[3]));                                          \
  }
  if constexpr (R == 0) {
  }
  EBB_WIDTHS(EBB_OF_WIDTH)
  else static_assert(R == 0, "d has no such width");
#undef EBB_OF_WIDTH
}
// d by chunks of 8 columns.
template <class T, int AMn, int BMn, int Chunks>
__device__ __forceinline__ void wgmma(float (&d)[Chunks][4], uint64_t a, uint64_t b,
                                      int accumulate) {
  wgmma<T, AMn, BMn>(reinterpret_cast<float(&)[Chunks * 4]>(d), a, b, accumulate);
}
template <class T, int BMn, int Chunks>
__device__ __forceinline__ void wgmma(float (&d)[Chunks][4], const uint32_t (&a)[4], uint64_t b,
                                      int accumulate) {
  wgmma<T, BMn>(reinterpret_cast<float(&)[Chunks * 4]>(d), a, b, accumulate);
}

#undef EBB_SM90_ASM
#undef EBB_WIDTHS
#undef EBB_D8
#undef EBB_D16
#undef EBB_D32
#undef EBB_D40
#undef EBB_D64
#undef EBB_D72
#undef EBB_D80
#undef EBB_D96
#undef EBB_D112
#undef EBB_D128
#undef EBB_D160
#undef EBB_D176
#undef EBB_D192
#undef EBB_D256
#undef EBB_NAME
#undef EBB_REGISTER
#undef EBB_WGMMA

}  // namespace ebb::cuda
