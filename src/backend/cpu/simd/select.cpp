#include <dnnl.hpp>

#include "backend/cpu/onednn_faults.h"
#include "backend/cpu/simd/levels.h"

namespace ebb::cpu {
namespace {

// 4: AVX-512; 3: AVX2 and FMA; 1: what every processor of the kind has.
int level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
    return 4;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return 3;
#endif
  return 1;
}

}  // namespace

const Loops& loops() {
#if defined(__x86_64__)
  static const int chosen = level();
  if (chosen == 4) return loops_v4;
  if (chosen == 3) return loops_v3;
#endif
  return loops_base;
}

std::vector<const PanelKernels*> all_panel_kernels() {
  std::vector<const PanelKernels*> found;
#if defined(__x86_64__)
  if (level() >= 4) found.push_back(&panels_v4);
  if (level() >= 3) found.push_back(&panels_v3);
#endif
  found.push_back(&panels_base);
  return found;
}

const PanelKernels& panel_kernels() {
  static const PanelKernels* const chosen = all_panel_kernels().front();
  return *chosen;
}

std::vector<const TileKernels*> all_tile_kernels() {
  std::vector<const TileKernels*> found;
#if defined(__x86_64__)
  if (level() >= 4) found.push_back(&tiles_v4);
  if (level() >= 3) found.push_back(&tiles_v3);
#endif
  found.push_back(&tiles_base);
  return found;
}

const TileKernels& tile_kernels() {
  static const TileKernels* const chosen = all_tile_kernels().front();
  return *chosen;
}

// oneDNN asks the system for the tiles' registers, which it gives to no process unasked.
const AmxKernels* amx_kernels() {
#if defined(__x86_64__)
  constexpr auto amx = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_amx);
  if ((onednn_isa() & amx) == amx) return &amx_v4;
#endif
  return nullptr;
}

}  // namespace ebb::cpu
