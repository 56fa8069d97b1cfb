#include "codegen/sine.h"

#include <array>

namespace ebb::codegen {
namespace {

// Bits of 2/pi behind the point, after 32 zeros.
constexpr uint32_t two_over_pi[] = {0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                    0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
constexpr int window = 4;  // words of it that matter to one number

U64 joined(U32 high, U32 low) { return (widen(high) << 32) | widen(low); }

// Words `first` to `first` + 3 of 2/pi, first <= 4.
std::array<U32, window> words_from(U32 first) {
  std::array<U32, window> w;
  for (size_t k = 0; k < w.size(); ++k) w[k] = first.builder->u32(two_over_pi[k]);
  for (uint32_t at = 1; at <= 4; ++at) {
    const Pred here = first >= at;
    for (size_t k = 0; k < w.size(); ++k)
      w[k] = select(here, first.builder->u32(two_over_pi[at + k]), w[k]);
  }
  return w;
}

// |x| 2/pi modulo 4, for x of 2^12 and more: the nearest whole number (`quarters`), and what is
// left times pi/2. |x| = m 2^(e - 150); of 2/pi, the bits from 2^(151 - e) on matter, and of
// these 96.
struct Reduced {
  U32 quarters;
  F32 rest;
};
Reduced reduce_large(F32 x) {
  const U32 bits = as_u32(x);
  const U32 m = (bits & 0x7fffffu) | 0x800000u;
  const U32 skip = ((bits >> 23) & 255u) - 120u;  // bits of the table before those that matter
  const std::array<U32, window> w = words_from(skip >> 5);
  const U32 by = skip & 31u;
  const auto shifted = [&](size_t k) {
    const U64 pair = joined(w[k], w[k + 1]);
    return low(U64(pair.builder->make(Op::shl, Kind::u64, {pair, by})) >> 32);
  };
  // m times the three words, modulo 2^96; its first two bits are the whole quarters
  const U64 t0 = mul_wide(m, shifted(2));
  const U64 t1 = mul_wide_add(m, shifted(1), t0 >> 32);
  const U64 t2 = mul_wide_add(m, shifted(0), t1 >> 32);
  const U32 high = low(t2);
  const U64 fraction = joined(high, low(t1)) << 2;
  const U32 half = low(fraction >> 63);  // more than a half: the next quarter is nearer
  const F32 rest(x.builder->make(Op::to_float, Kind::f32, {fraction}));  // as a signed number
  constexpr float unit = 0x1.921fb6p-64f;                                // pi/2 / 2^64
  return {(high >> 30) + half, rest * unit};
}

}  // namespace

F32 sine(F32 x, int quarters) {
  Builder& b = *x.builder;
  // n = the nearest number to x 2/pi; x - n pi/2 with pi/2 in parts of 11 bits, so that n times
  // each is exact below 2^13.
  constexpr float shifter = 12582912.0f;  // 1.5 * 2^23: pushes the fraction out
  constexpr float part1 = 0x1.92p+0f, part2 = 0x1.fb4p-12f, part3 = 0x1.444p-24f,
                  part4 = 0x1.68c234p-39f, limit = 6000.0f;
  const F32 shifted = fma(x, 0.636619747f, b.f32(shifter));
  const F32 minus_n = b.f32(shifter) - shifted;
  F32 rest = fma(minus_n, part1, x);
  rest = fma(minus_n, part2, rest);
  rest = fma(minus_n, part4, fma(minus_n, part3, rest));
  const Var<Kind::f32> r = b.var(rest);
  const Var<Kind::u32> q = b.var(as_u32(shifted));
  b.when(invert(abs(x) <= limit), [&] {
    const Reduced large = reduce_large(x);
    const U32 negative = as_u32(x) >> 31;
    const U32 zero = b.u32(0);
    q.set(select(negative != 0u, zero - large.quarters, large.quarters));
    // of infinities and NaN: NaN
    r.set(select(negative != 0u, -large.rest, large.rest) + x * 0.0f);
  });
  const F32 y = r.get();
  U32 quarter = q.get();
  if (quarters != 0) quarter = quarter + static_cast<uint32_t>(quarters);
  const F32 z = y * y;
  const F32 s = polynomial(z, {-0.000195136206f, 0.00833214913f, -0.166666538f});
  const F32 of_sine = fma(s * z, y, y);
  const F32 c = polynomial(z, {2.4431256e-05f, -0.00138873002f, 0.0416666456f, -0.5f});
  const F32 of_cosine = fma(c, z, b.f32(1.0f));
  const F32 v = select((quarter & 1u) != 0u, of_cosine, of_sine);
  return as_f32(as_u32(v) ^ ((quarter << 30) & 0x80000000u));
}

}  // namespace ebb::codegen
