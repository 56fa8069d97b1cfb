#include "codegen/math.h"

#include <limits>

#include "base/error.h"
#include "codegen/sine.h"

namespace ebb::codegen {
namespace {

constexpr float log2e = 1.44269502f, ln2 = 0.693147182f;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

F32 constant(const F32& like, float v) { return like.builder->f32(v); }
F32 min_nan(F32 a, float b) { return binary(Op::min_nan, a, constant(a, b)); }
F32 max_nan(F32 a, float b) { return binary(Op::max_nan, a, constant(a, b)); }
F32 exp2(F32 x) { return unary(Op::exp2, x); }
F32 reciprocal(F32 x) { return unary(Op::rcp, x); }

// e^x = 2^(n-1) e^r with n the nearest number to x / ln2, so ln2 / 2 <= r <= 3 ln2 / 2: there is no
// 2^128. Overflows to inf above 88.72; 0 below -86.99.
F32 exponential(F32 x, Precision precision) {
  if (precision == Precision::narrow) return exp2(product(x, constant(x, log2e)));
  constexpr float shifter = 12582912.0f;  // 1.5 * 2^23: pushes the fraction out
  // ln2 in two parts; the first has 15 bits, so that n times it is exact.
  constexpr float ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  const F32 c = min_nan(max_nan(x, -87.4f), 89.0f);
  const F32 shifted = fma(c, log2e, constant(x, shifter));
  const F32 one_minus_n = constant(x, shifter + 1) - shifted;
  const F32 r = fma(one_minus_n, ln2_low, fma(one_minus_n, ln2_high, c));
  // n stands in the low bits of `shifted`
  return exp2(r * log2e) * as_f32((as_u32(shifted) << 23) + 0x3f000000u);
}

F32 sigmoid(F32 x, Precision precision) {
  const F32 e = precision == Precision::narrow ? exp2(product(x, constant(x, -log2e)))
                                               : exponential(-x, precision);
  return reciprocal(e + 1.0f);
}

// Near 0 a polynomial fitted to its relative error, elsewhere 1 - 2 / (e^2|x| + 1).
F32 tanh(F32 x) {
  constexpr float border = 0.55f;
  const F32 a = abs(x);
  const F32 r = reciprocal(exp2(a * (2 * log2e)) + 1.0f);
  const F32 far = copysign(fma(r, -2.0f, constant(x, 1.0f)), x);
  const F32 z = x * x;
  const F32 q = polynomial(z, {0.0164375622f, -0.0526718013f, 0.133207247f, -0.333329469f});
  const F32 near = fma(q * z, x, x);
  return select(a >= border, far, near);
}

// log x = n ln2 + log(1 + f), 1 + f in [2/3, 4/3): a polynomial fitted to its relative error.
F32 logarithm(F32 x) {
  const Pred tiny = x < 1.17549435e-38f;
  const I32 bits = as_i32(select(tiny, x * 8388608.0f, x));
  const I32 n = (bits - 0x3f2aaaab) >> 23;
  const F32 mantissa = as_f32(bits - (n << 23));
  const F32 exponent = to_f32(n) + select(tiny, constant(x, -23.0f), constant(x, 0.0f));
  const F32 f = mantissa + -1.0f;
  const F32 q = polynomial(f, {-0.129488334f, 0.140047625f, -0.121671855f, 0.140011594f,
                               -0.16682303f, 0.20010747f, -0.249997169f, 0.333332092f, -0.5f});
  const F32 y = fma(exponent, ln2, fma(f * f, q, f));
  // inf and NaN are their own logarithms
  const F32 special =
      select(x == 0.0f, constant(x, -infinity), select(x < 0.0f, constant(x, nan), x));
  return select(both(x > 0.0f, x < infinity), y, special);
}

// e^(y log|x|), negative for negative x and odd y, NaN for negative finite x and a fraction y.
F32 power(F32 x, F32 y) {
  const F32 e = exponential(y * logarithm(abs(x)), Precision::full);
  const F32 half = y * 0.5f;
  const Pred whole = floor(y) == y;
  const Pred odd = both(floor(half) != half, whole);
  const F32 with_sign = select(odd, copysign(e, x), e);
  const Pred undefined = both(both(x<0.0f, x> - infinity), floor(y) != y);
  const F32 one = constant(x, 1.0f);
  const F32 result = select(undefined, constant(x, nan), with_sign);
  const F32 unless_one = select(both(abs(x) == 1.0f, abs(y) == infinity), one, result);
  return select(y == 0.0f, one, select(x == 1.0f, one, unless_one));
}

// Near 0 x P(x^2), elsewhere 1 - 2^Q(|x|); P and Q fitted to the errors of the results.
F32 erf(F32 x) {
  const F32 a = abs(x), z = x * x;
  const F32 near = x * polynomial(z, {-0.00056314189f, 0.00491755083f, -0.0267113112f, 0.112801798f,
                                      -0.37612325f, 1.12837911f});
  const F32 b = min(a, constant(x, 4.0f));
  const F32 w = polynomial(b, {-3.12875127e-05f, 0.000636713812f, -0.00606590044f, 0.0363678262f,
                               -0.156414941f, -0.913543224f, -1.62963724f, 0.00027128472f});
  const F32 far = copysign(constant(x, 1.0f) - exp2(w), x);
  return select(a >= 1.0f, far, near);
}

}  // namespace

F32 polynomial(F32 x, std::initializer_list<float> coefficients) {
  auto c = coefficients.begin();
  F32 y = fma(x, c[0], x.builder->f32(c[1]));
  for (c += 2; c != coefficients.end(); ++c) y = fma(y, x, *c);
  return y;
}

F32 write_op(ScalarOp op, std::span<const F32> in, Precision precision) {
  const F32 x = in[0];
  switch (op) {
    case ScalarOp::input:
    case ScalarOp::constant: return x;
    case ScalarOp::add: return sum(x, in[1]);
    case ScalarOp::sub: return difference(x, in[1]);
    case ScalarOp::mul: return product(x, in[1]);
    case ScalarOp::div: return binary(Op::div, x, in[1]);
    // a < b ? a : b, with its way of treating NaN
    case ScalarOp::min: return select(x < in[1], x, in[1]);
    case ScalarOp::max: return select(x > in[1], x, in[1]);
    case ScalarOp::less: return binary(Op::less, x, in[1]);
    case ScalarOp::pow: return power(x, in[1]);
    case ScalarOp::neg: return -x;
    case ScalarOp::abs: return abs(x);
    case ScalarOp::sqrt: return unary(Op::sqrt, x);
    case ScalarOp::rsqrt: return unary(Op::rsqrt, x);
    case ScalarOp::exp: return exponential(x, precision);
    case ScalarOp::log: return logarithm(x);
    case ScalarOp::sin: return sine(x, 0);
    case ScalarOp::cos: return sine(x, 1);
    case ScalarOp::tanh: return tanh(x);
    case ScalarOp::sigmoid: return sigmoid(x, precision);
    case ScalarOp::erf: return erf(x);
    case ScalarOp::floor: return floor(x);
    case ScalarOp::bf16: return x.builder->rounded(x, DType::bf16);
    case ScalarOp::f16: return x.builder->rounded(x, DType::f16);
    case ScalarOp::select: return select(x != 0.0f, in[1], in[2]);
  }
  fail("codegen: unknown function");
}

int instructions_of(ScalarOp op, Precision precision) {
  const bool full = precision == Precision::full;
  switch (op) {
    case ScalarOp::input:
    case ScalarOp::constant: return 0;
    case ScalarOp::div: return 8;
    case ScalarOp::sqrt:
    case ScalarOp::rsqrt: return 5;
    case ScalarOp::exp: return full ? 12 : 2;
    case ScalarOp::log: return full ? 26 : 4;
    case ScalarOp::pow: return 52;
    case ScalarOp::sin:
    case ScalarOp::cos: return 28;
    case ScalarOp::tanh: return 15;
    case ScalarOp::sigmoid: return full ? 15 : 4;
    case ScalarOp::erf: return 22;
    case ScalarOp::min:
    case ScalarOp::max:
    case ScalarOp::select: return 2;
    default: return 1;
  }
}

}  // namespace ebb::codegen
