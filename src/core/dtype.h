// DType: the number formats of tensors, and the host's bf16 and f16.
#pragma once

#include <bit>
#include <cstdint>
#include <ostream>
#include <string_view>

namespace ebb {

enum class DType : uint8_t { f32, bf16, f16, i32, i64, u8 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f32: return 4;
    case DType::bf16: return 2;
    case DType::f16: return 2;
    case DType::i32: return 4;
    case DType::i64: return 8;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr bool is_float(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }

std::string_view name_of(DType t);         // "f32", "bf16", ...
DType parse_dtype(std::string_view name);  // throws Error

inline std::ostream& operator<<(std::ostream& out, DType t) { return out << name_of(t); }

// The upper half of an f32, rounded to nearest even.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float v) {
    const uint32_t u = std::bit_cast<uint32_t>(v);
    const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

// IEEE binary16.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
  explicit f16(float v);
  explicit operator float() const;
};

// Calls f with a value of the C++ type of `t`: visit_dtype(t, [&](auto zero) { ... }).
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    case DType::i32: return f(int32_t{});
    case DType::i64: return f(int64_t{});
    case DType::u8: return f(uint8_t{});
    case DType::f32: break;
  }
  return f(float{});
}

template <class T>
struct dtype_of_t;
template <>
struct dtype_of_t<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of_t<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of_t<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct dtype_of_t<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct dtype_of_t<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct dtype_of_t<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <class T>
inline constexpr DType dtype_of = dtype_of_t<T>::value;

}  // namespace ebb
