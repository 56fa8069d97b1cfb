#include "backend/cpu/simd/levels.h"

namespace ebb::cpu {

const Loops& loops() {
#if defined(__x86_64__)
  static const Loops* const chosen = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
      return &loops_v4;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &loops_v3;
    return &loops_base;
  }();
  return *chosen;
#else
  return loops_base;
#endif
}

}  // namespace ebb::cpu
