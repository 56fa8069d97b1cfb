#include "core/not_finite.h"

#include <algorithm>
#include <cstring>

namespace ebb {
namespace {

// Numbers with all bits of the exponent set are infinite or none.
template <class Bits>
int64_t find(const void* data, int64_t n, Bits exponent) {
  constexpr int64_t block = 4096;
  const auto* bytes = static_cast<const char*>(data);
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block);
    const auto bad = [&](int64_t i) {
      Bits v;
      std::memcpy(&v, bytes + i * static_cast<int64_t>(sizeof v), sizeof v);
      return (v & exponent) == exponent;
    };
    int any = 0;
#pragma omp simd reduction(| : any)
    for (int64_t i = begin; i < end; ++i) any |= bad(i);
    for (int64_t i = begin; any && i < end; ++i)
      if (bad(i)) return i;
  }
  return -1;
}

}  // namespace

int64_t find_not_finite(const Type& type, const void* data) {
  const int64_t n = type.shape.numel();
  switch (type.dtype) {
    case DType::f32: return find(data, n, uint32_t{0x7f800000});
    case DType::bf16: return find(data, n, uint16_t{0x7f80});
    case DType::f16: return find(data, n, uint16_t{0x7c00});
    default: return -1;
  }
}

}  // namespace ebb
