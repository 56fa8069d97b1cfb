// wgmma: the matrix instruction of sm_90a; d[64, N] += a[64, 16] b[16, N] over a warpgroup. b lies
// in shared memory behind a descriptor, a too or in registers; N is twice the number of d's
// registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace ebb::cuda {

// A tile of shared memory in the 128-byte swizzle, at byte address `address` (a multiple of 1024
// but for steps along k). K-major: rows of 64 values of k, one row for each value of m or n.
// MN-major: rows of 64 values of m or n, one row for each value of k, and the next 64 values of m
// or n 8192 bytes further on.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address) {
  constexpr uint64_t swizzle_128 = uint64_t{1} << 62;
  constexpr uint64_t eight_rows = 1024 >> 4, next_64 = 8192 >> 4;
  return swizzle_128 | eight_rows << 32 | next_64 << 16 | (address & 0x3ffff) >> 4;
}
// What to add to a descriptor for the next 16 values of k.
template <int Mn>
inline constexpr uint64_t wgmma_next_k = (Mn ? 16 * 128 : 16 * 2) >> 4;

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

// How the instruction names the type of its operands.
template <class T>
extern const char wgmma_type[];
template <>
inline constexpr char wgmma_type<__nv_bfloat16>[] = "bf16";
template <>
inline constexpr char wgmma_type<__half>[] = "f16";

// The instruction of width N, one for each row of the table below. d has N / 2 registers.
template <int N>
struct WgmmaOf;

// x0 to x7: the numbers of the operands behind d's; d's themselves come last.
#define EBB_WGMMA(n, text, x0, x1, x2, x3, x4, x5, x6, x7, ...)                                \
  template <>                                                                                  \
  struct WgmmaOf<n> {                                                                          \
    template <class T, int AMn, int BMn>                                                       \
    __device__ static __forceinline__ void run(float (&d)[n / 2], uint64_t a, uint64_t b,      \
                                               int accumulate) {                               \
      EBB_SM90_ASM("{ .reg .pred p; setp.ne.b32 p, %" #x2                                      \
                   ", 0;\n"                                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.%" #x5 ".%" #x5 " {" text   \
                   "}, %" #x0 ", %" #x1 ", p, 1, 1, %" #x3 ", %" #x4 "; }"                     \
                   : __VA_ARGS__                                                               \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(AMn), "n"(BMn), "C"(wgmma_type<T>)); \
    }                                                                                          \
    template <class T, int BMn>                                                                \
    __device__ static __forceinline__ void run(float (&d)[n / 2], const uint32_t (&a)[4],      \
                                               uint64_t b, int accumulate) {                   \
      EBB_SM90_ASM("{ .reg .pred p; setp.ne.b32 p, %" #x5                                      \
                   ", 0;\n"                                                                    \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.%" #x7 ".%" #x7 " {" text   \
                   "}, {%" #x0 ",%" #x1 ",%" #x2 ",%" #x3 "}, %" #x4 ", p, 1, 1, %" #x6 "; }"  \
                   : __VA_ARGS__                                                               \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),      \
                     "n"(BMn), "C"(wgmma_type<T>));                                            \
    }                                                                                          \
  };

#define EBB_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define EBB_D8(i) EBB_D4(i), EBB_D4(i + 4)
#define EBB_D16(i) EBB_D8(i), EBB_D8(i + 8)
#define EBB_D32(i) EBB_D16(i), EBB_D16(i + 16)
#define EBB_D64(i) EBB_D32(i), EBB_D32(i + 32)

// The names of d's registers in the text; each list goes on where the one before it ends.
#define EBB_TEXT4 "%0,%1,%2,%3"
#define EBB_TEXT8 EBB_TEXT4 ",%4,%5,%6,%7"
#define EBB_TEXT16 EBB_TEXT8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define EBB_TEXT20 EBB_TEXT16 ",%16,%17,%18,%19"
#define EBB_TEXT32 EBB_TEXT20 ",%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define EBB_TEXT36 EBB_TEXT32 ",%32,%33,%34,%35"
#define EBB_TEXT40 EBB_TEXT36 ",%36,%37,%38,%39"
#define EBB_TEXT48 EBB_TEXT40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define EBB_TEXT56 EBB_TEXT48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define EBB_TEXT64 EBB_TEXT56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define EBB_TEXT80 EBB_TEXT64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define EBB_TEXT88 EBB_TEXT80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define EBB_TEXT96 EBB_TEXT88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define EBB_TEXT128                                                                            \
  EBB_TEXT96                                                                                   \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108"                              \
  ",%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126" \
  ",%127"

// clang-format off: a row for each width
EBB_WGMMA(8, EBB_TEXT4, 4, 5, 6, 7, 8, 9, 10, 11, EBB_D4(0))
EBB_WGMMA(16, EBB_TEXT8, 8, 9, 10, 11, 12, 13, 14, 15, EBB_D8(0))
EBB_WGMMA(32, EBB_TEXT16, 16, 17, 18, 19, 20, 21, 22, 23, EBB_D16(0))
EBB_WGMMA(40, EBB_TEXT20, 20, 21, 22, 23, 24, 25, 26, 27, EBB_D16(0), EBB_D4(16))
EBB_WGMMA(64, EBB_TEXT32, 32, 33, 34, 35, 36, 37, 38, 39, EBB_D32(0))
EBB_WGMMA(72, EBB_TEXT36, 36, 37, 38, 39, 40, 41, 42, 43, EBB_D32(0), EBB_D4(32))
EBB_WGMMA(80, EBB_TEXT40, 40, 41, 42, 43, 44, 45, 46, 47, EBB_D32(0), EBB_D8(32))
EBB_WGMMA(96, EBB_TEXT48, 48, 49, 50, 51, 52, 53, 54, 55, EBB_D32(0), EBB_D16(32))
EBB_WGMMA(112, EBB_TEXT56, 56, 57, 58, 59, 60, 61, 62, 63, EBB_D32(0), EBB_D16(32), EBB_D8(48))
EBB_WGMMA(128, EBB_TEXT64, 64, 65, 66, 67, 68, 69, 70, 71, EBB_D64(0))
EBB_WGMMA(160, EBB_TEXT80, 80, 81, 82, 83, 84, 85, 86, 87, EBB_D64(0), EBB_D16(64))
EBB_WGMMA(176, EBB_TEXT88, 88, 89, 90, 91, 92, 93, 94, 95, EBB_D64(0), EBB_D16(64), EBB_D8(80))
EBB_WGMMA(192, EBB_TEXT96, 96, 97, 98, 99, 100, 101, 102, 103, EBB_D64(0), EBB_D32(64))
EBB_WGMMA(256, EBB_TEXT128, 128, 129, 130, 131, 132, 133, 134, 135, EBB_D64(0), EBB_D64(64))
// clang-format on

#undef EBB_SM90_ASM
#undef EBB_WGMMA
#undef EBB_D4
#undef EBB_D8
#undef EBB_D16
#undef EBB_D32
#undef EBB_D64
#undef EBB_TEXT4
#undef EBB_TEXT8
#undef EBB_TEXT16
#undef EBB_TEXT20
#undef EBB_TEXT32
#undef EBB_TEXT36
#undef EBB_TEXT40
#undef EBB_TEXT48
#undef EBB_TEXT56
#undef EBB_TEXT64
#undef EBB_TEXT80
#undef EBB_TEXT88
#undef EBB_TEXT96
#undef EBB_TEXT128

// d += a b, or d = a b if not `accumulate`. AMn, BMn: 1 if the operand is MN-major.
template <class T, int AMn, int BMn, int R>
__device__ __forceinline__ void wgmma(float (&d)[R], uint64_t a, uint64_t b, int accumulate) {
  WgmmaOf<2 * R>::template run<T, AMn, BMn>(d, a, b, accumulate);
}
template <class T, int AMn, int BMn, int Chunks>
__device__ __forceinline__ void wgmma(float (&d)[Chunks][4], uint64_t a, uint64_t b,
                                      int accumulate) {
  wgmma<T, AMn, BMn>(reinterpret_cast<float(&)[Chunks * 4]>(d), a, b, accumulate);
}
// a in registers, as the accumulators of 16 columns lie once they are rounded to 16 bits.
template <class T, int BMn, int Chunks>
__device__ __forceinline__ void wgmma(float (&d)[Chunks][4], const uint32_t (&a)[4], uint64_t b,
                                      int accumulate) {
  WgmmaOf<8 * Chunks>::template run<T, BMn>(reinterpret_cast<float(&)[Chunks * 4]>(d), a, b,
                                            accumulate);
}

}  // namespace ebb::cuda
