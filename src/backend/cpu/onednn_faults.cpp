#include "backend/cpu/onednn_faults.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <dnnl.hpp>

#include "base/round_up.h"

namespace ebb::cpu {
namespace {

bool hides_amx_tiles() {
#ifdef __x86_64__
  constexpr unsigned features = 7, tiles = 0x1d, amx_tile = 1u << 24;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(features, 0, &a, &b, &c, &d) == 0 || (d & amx_tile) == 0) return false;
  return __get_cpuid_count(tiles, 0, &a, &b, &c, &d) == 0 || a == 0;  // a: the number of palettes
#else
  return false;
#endif
}

unsigned choose_isa() {
  const bool chosen = std::getenv("ONEDNN_MAX_CPU_ISA") || std::getenv("DNNL_MAX_CPU_ISA");
  if (!chosen && hides_amx_tiles()) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
  return static_cast<unsigned>(dnnl::get_effective_cpu_isa());
}

bool has_bands_of_one_row(const ConvProblem& p) {
  // The banded code takes square kernels whose result has the size of the image.
  const bool banded = p.kh == p.kw && p.stride == 1 && p.out_h() == p.h && p.out_w() == p.w &&
                      p.top == p.kh / 2 && p.left == p.kw / 2 && p.top > 0;
  if (!banded) return false;
  // It packs rows of 16 bf16 channels of src, with padding up to a tile, and of dst, and divides
  // the height, by its smallest divisor or a half, until a band fits into 48 KiB. Where three rows
  // fit, it stops at two or more.
  constexpr int64_t tile = 32, channels = 16, bf16 = 2, band = 48 * 1024;
  const int64_t padding = rounded_up(std::max(p.left, p.right + 1), tile);
  const int64_t row = rounded_up(p.w + padding, tile) + rounded_up(p.w, 2);
  return 3 * row * channels * bf16 > band;
}

}  // namespace

unsigned onednn_isa() {
  static const unsigned isa = choose_isa();
  return isa;
}

bool weight_gradient_is_wrong(const ConvProblem& p, std::string_view kernel) {
  if (kernel.starts_with("jit:avx512_core_amx")) return has_bands_of_one_row(p);
  const bool gathers = kernel.find("1x1") != std::string_view::npos && p.stride > 1;
  return gathers && p.c < 16;
}

}  // namespace ebb::cpu
