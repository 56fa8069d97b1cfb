// Elementary functions in f32 without branches or library calls, so that loops over them vectorise.
// Errors against double, over the whole range: at most 3 ulp unless a line says otherwise
// (tests/math_test.cpp measures them).
#pragma once

#include <bit>
#include <cstdint>

namespace ebb::cpu {
namespace {

inline float select(bool condition, float a, float b) { return condition ? a : b; }
inline float absolute(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7fffffffu);
}
inline float copy_sign(float magnitude, float sign) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(magnitude) & 0x7fffffffu) |
                              (std::bit_cast<uint32_t>(sign) & 0x80000000u));
}
// To the nearest whole number, |x| < 2^22: adding 1.5 * 2^23 pushes the fraction out.
inline float round_small(float x) { return (x + 12582912.0f) - 12582912.0f; }

// e^x = 2^n e^r with r in [-ln2/2, ln2/2]; Taylor's polynomial of degree 7 for e^r. Overflows to
// inf above 88.72, underflows to 0 below -87.3.
inline float exp_f32(float x) {
  const float clamped = select(x > 88.8f, 88.8f, select(x < -87.4f, -87.4f, x));
  const float n = round_small(clamped * 1.44269504f);
  const float r = (clamped - n * 0.693145752f) - n * 1.42860677e-6f;  // ln2 in two parts
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors: n reaches 128 and -126
  const auto half = static_cast<int32_t>(n) >> 1, rest = static_cast<int32_t>(n) - half;
  const float a = std::bit_cast<float>((half + 127) << 23),
              b = std::bit_cast<float>((rest + 127) << 23);
  const float y = p * a * b;
  return select(x < -87.4f, 0.0f, y);
}

// log x = e ln2 + 2 atanh((m - 1) / (m + 1)) with m in [sqrt(1/2), sqrt(2)).
inline float log_f32(float x) {
  const float scaled = select(x < 1.17549435e-38f, x * 8388608.0f, x);  // denormals
  const uint32_t bits = std::bit_cast<uint32_t>(scaled);
  const uint32_t shifted = bits - 0x3f3504f3u;  // sqrt(1/2)
  const float e = static_cast<float>(static_cast<int32_t>(shifted) >> 23) -
                  select(x < 1.17549435e-38f, 23.0f, 0.0f);
  const float m = std::bit_cast<float>((shifted & 0x007fffffu) + 0x3f3504f3u);
  const float s = (m - 1.0f) / (m + 1.0f), z = s * s;
  float p = 2.0f / 9;
  p = p * z + 2.0f / 7;
  p = p * z + 2.0f / 5;
  p = p * z + 2.0f / 3;
  const float y = (e * 0.693145752f) + ((e * 1.42860677e-6f + p * z * s) + 2.0f * s);
  const float inf = __builtin_inff(), nan = __builtin_nanf("");
  return select(x == 0.0f, -inf, select(x < 0.0f, nan, select(x < inf, y, x)));
}

inline float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

// Near 0 its Taylor series, elsewhere through e^2x.
inline float tanh_f32(float x) {
  const float a = absolute(x), z = x * x;
  float p = -1382.0f / 155925;
  p = p * z + 62.0f / 2835;
  p = p * z - 17.0f / 315;
  p = p * z + 2.0f / 15;
  p = p * z - 1.0f / 3;
  const float near = x + x * (p * z);
  const float far = copy_sign(1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f), x);
  return select(a < 0.35f, near, far);
}

// sin and cos by reduction to [-pi/4, pi/4] with pi/2 in three parts; the error grows with |x|
// (1e-7 |x| beyond 1e4).
inline float sin_quadrant(float x, int32_t shift) {
  const float n = round_small(x * 0.636619772f);
  const float r = ((x - n * 1.5703125f) - n * 4.83751297e-4f) - n * 7.54978995e-8f;
  const float z = r * r;
  float s = 1.0f / 362880;
  s = s * z - 1.0f / 5040;
  s = s * z + 1.0f / 120;
  s = s * z - 1.0f / 6;
  const float sine = r + r * (s * z);
  float c = -1.0f / 3628800;
  c = c * z + 1.0f / 40320;
  c = c * z - 1.0f / 720;
  c = c * z + 1.0f / 24;
  c = c * z - 0.5f;
  const float cosine = 1.0f + c * z;
  const int32_t q = static_cast<int32_t>(n) + shift;
  const float y = select((q & 1) != 0, cosine, sine);
  return select((q & 2) != 0, -y, y);
}
inline float sin_f32(float x) { return sin_quadrant(x, 0); }
inline float cos_f32(float x) { return sin_quadrant(x, 1); }

inline float pow_f32(float x, float y) { return exp_f32(y * log_f32(x)); }  // x > 0

// Near 0 the Taylor series, elsewhere 1 - erfc through a fit of its logarithm.
inline float erf_f32(float x) {
  const float a = absolute(x), z = x * x;
  // x * P(x^2), the series 2/sqrt(pi) sum (-1)^k x^2k / (k! (2k+1))
  float p = 1.1283791671f / (3628800.0f * 21);
  p = p * z - 1.1283791671f / (362880.0f * 19);
  p = p * z + 1.1283791671f / (40320.0f * 17);
  p = p * z - 1.1283791671f / (5040.0f * 15);
  p = p * z + 1.1283791671f / (720.0f * 13);
  p = p * z - 1.1283791671f / (120.0f * 11);
  p = p * z + 1.1283791671f / (24.0f * 9);
  p = p * z - 1.1283791671f / (6.0f * 7);
  p = p * z + 1.1283791671f / (2.0f * 5);
  p = p * z - 1.1283791671f / 3;
  p = p * z + 1.1283791671f;
  const float near = x * p;
  // log(erfc(a) e^(a^2)) for 1 <= a <= 4.1: a least-squares fit at Chebyshev nodes, degree 8
  const float b = select(a > 4.0f, 4.0f, a);
  float q = 1.5743e-06f;
  q = q * b - 4.48223932e-05f;
  q = q * b + 0.000586451235f;
  q = q * b - 0.00471138769f;
  q = q * b + 0.0262850125f;
  q = q * b - 0.109841847f;
  q = q * b + 0.367922006f;
  q = q * b - 1.13008643f;
  q = q * b + 0.000283932954f;
  const float far = 1.0f - exp_f32(q - b * b);
  return select(a < 1.0f, near, copy_sign(far, x));
}

}  // namespace
}  // namespace ebb::cpu
