#include "core/dtype.h"

#include <array>
#include <cmath>

#include "base/names.h"

namespace ebb {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
};
constexpr std::array<Entry, 6> entries{{{DType::f32, "f32"},
                                        {DType::bf16, "bf16"},
                                        {DType::f16, "f16"},
                                        {DType::i32, "i32"},
                                        {DType::i64, "i64"},
                                        {DType::u8, "u8"}}};

}  // namespace

std::string_view name_of(DType t) {
  for (const Entry& e : entries)
    if (e.dtype == t) return e.name;
  return "?";
}

DType parse_dtype(std::string_view name) {
  return find_known("dtype: unknown name", name, entries, &Entry::name).dtype;
}

f16::f16(float v) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  const float a = std::fabs(v);
  if (!(a == a)) {
    bits = sign | 0x7e00u;
  } else if (a >= 65520.0f) {
    bits = sign | 0x7c00u;
  } else if (a < 0x1p-14f) {  // denormal: round a / 2^-24 to the nearest even integer
    bits = static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(a * 0x1p24f)));
  } else {
    const uint32_t m = (u & 0x7fffffffu) - (112u << 23);
    bits = static_cast<uint16_t>(sign | ((m + 0xfffu + ((m >> 13) & 1u)) >> 13));
  }
}

f16::operator float() const {
  const uint32_t sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
  if (rest < 0x400u) {
    const float v = static_cast<float>(rest) * 0x1p-24f;
    return sign ? -v : v;
  }
  return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
}

}  // namespace ebb
