#include "backend/cuda/ptx/math.h"

#include <limits>

namespace ebb::cuda {
namespace {

constexpr float log2e = 1.44269502f, log2e_rest = 1.92596299e-8f, ln2 = 0.693147182f;
constexpr float infinity = std::numeric_limits<float>::infinity();

// Horner's rule; the highest coefficient first.
Reg polynomial(Ptx& p, Reg x, std::initializer_list<float> coefficients) {
  auto c = coefficients.begin();
  Reg y = p.f32("fma.rn.f32", x, Operand(c[0]), p.in_register(c[1]));
  for (c += 2; c != coefficients.end(); ++c) y = p.f32("fma.rn.f32", y, x, Operand(*c));
  return y;
}

// The larger, the smaller; NaN if one is.
Reg max_nan(Ptx& p, const Operand& a, float b) {
  if (p.capability() >= 80) return p.f32("max.NaN.f32", a, Operand(b));
  const Reg less = p.test("setp.lt.f32", a, Operand(b));
  return p.f32("selp.f32", Operand(b), a, less);
}
Reg min_nan(Ptx& p, const Operand& a, float b) {
  if (p.capability() >= 80) return p.f32("min.NaN.f32", a, Operand(b));
  const Reg greater = p.test("setp.gt.f32", a, Operand(b));
  return p.f32("selp.f32", Operand(b), a, greater);
}

// e^x = 2^n 2^f with x log2(e) = n + f, |f| <= 1/2. Overflows to inf above 88.72; subnormal results
// are 0.
Reg exponential(Ptx& p, const Operand& x, Precision precision) {
  if (precision == Precision::narrow)
    return p.f32("ex2.approx.ftz.f32", p.f32("mul.f32", x, Operand(log2e)));
  constexpr float shifter = 12582912.0f;  // 1.5 * 2^23: pushes the fraction out
  const Reg c = min_nan(p, max_nan(p, x, -87.4f), 89.0f);
  const Reg shifted = p.f32("fma.rn.f32", c, Operand(log2e), Operand(shifter));
  const Reg minus_n = p.f32("sub.rn.f32", Operand(shifter), shifted);
  Reg f = p.f32("fma.rn.f32", c, Operand(log2e), minus_n);
  f = p.f32("fma.rn.f32", c, Operand(log2e_rest), f);
  const Reg e = p.f32("ex2.approx.ftz.f32", f);
  // n stands in the low bits of `shifted`; 2^(n-1), as 2^128 is no number
  const Reg bits = p.b32("add.u32", p.b32("shl.b32", p.b32("mov.b32", shifted), 23), "0x3f000000");
  const Reg half = p.f32("mul.rn.f32", e, p.f32("mov.b32", bits));
  return p.f32("add.rn.f32", half, half);
}

Reg sigmoid(Ptx& p, const Operand& x, Precision precision) {
  Reg e;
  if (precision == Precision::narrow)
    e = p.f32("ex2.approx.ftz.f32", p.f32("mul.f32", x, Operand(-log2e)));
  else
    e = exponential(p, p.f32("neg.f32", x), precision);
  return p.f32("rcp.approx.ftz.f32", p.f32("add.rn.f32", e, Operand(1.0f)));
}

// Near 0 a polynomial fitted to its relative error, elsewhere 1 - 2 / (e^2|x| + 1).
Reg tanh(Ptx& p, const Operand& x) {
  constexpr float border = 0.55f;
  const Reg a = p.f32("abs.f32", x);
  const Reg e = p.f32("ex2.approx.ftz.f32", p.f32("mul.rn.f32", a, Operand(2 * log2e)));
  const Reg r = p.f32("rcp.approx.ftz.f32", p.f32("add.rn.f32", e, Operand(1.0f)));
  Reg far = p.f32("fma.rn.f32", r, Operand(-2.0f), p.in_register(1.0f));
  far = p.f32("copysign.f32", x, far);
  const Reg z = p.f32("mul.rn.f32", x, x);
  const Reg q = polynomial(p, z, {0.0164375622f, -0.0526718013f, 0.133207247f, -0.333329469f});
  const Reg near = p.f32("fma.rn.f32", p.f32("mul.rn.f32", q, z), x, x);
  const Reg outside = p.test("setp.ge.f32", a, Operand(border));
  return p.f32("selp.f32", far, near, outside);
}

// log x = n ln2 + log(1 + f), 1 + f in [2/3, 4/3): a polynomial fitted to its relative error.
Reg logarithm(Ptx& p, const Operand& x, Precision precision) {
  const Reg quick = p.f32("lg2.approx.f32", x);
  if (precision == Precision::narrow) return p.f32("mul.f32", quick, Operand(ln2));
  const Reg tiny = p.test("setp.lt.f32", x, Operand(1.17549435e-38f));
  const Reg scaled = p.f32("selp.f32", p.f32("mul.rn.f32", x, Operand(8388608.0f)), x, tiny);
  const Reg bits = p.b32("mov.b32", scaled);
  const Reg n = p.b32("shr.s32", p.b32("sub.s32", bits, "0x3f2aaaab"), 23);
  const Reg mantissa = p.f32("mov.b32", p.b32("sub.s32", bits, p.b32("shl.b32", n, 23)));
  const Reg exponent = p.f32("add.rn.f32", p.f32("cvt.rn.f32.s32", n),
                             p.f32("selp.f32", Operand(-23.0f), Operand(0.0f), tiny));
  const Reg f = p.f32("add.rn.f32", mantissa, Operand(-1.0f));
  const Reg q = polynomial(p, f,
                           {-0.129488334f, 0.140047625f, -0.121671855f, 0.140011594f, -0.16682303f,
                            0.20010747f, -0.249997169f, 0.333332092f, -0.5f});
  Reg y = p.f32("fma.rn.f32", p.f32("mul.rn.f32", f, f), q, f);
  y = p.f32("fma.rn.f32", exponent, Operand(ln2), y);
  const Reg positive = p.test("setp.gt.f32", x, Operand(0.0f));
  const Reg ordinary = p.test("setp.lt.and.f32", x, Operand(infinity), positive);
  return p.f32("selp.f32", y, quick, ordinary);  // quick: -inf, inf or NaN
}

// sin(x + quarters pi/2): reduced to [-pi/4, pi/4] in double, exact below 2^52.
Reg sine(Ptx& p, const Operand& x, int quarters) {
  const Reg wide = p.make(RegKind::f64, "cvt.f64.f32", x);
  const Reg turns = p.make(RegKind::f64, "mul.rn.f64", wide, "0d3FE45F306DC9C883");  // 2/pi
  const Reg n = p.make(RegKind::f64, "cvt.rni.f64.f64", turns);
  Reg rest = p.make(RegKind::f64, "fma.rn.f64", n, "0dBFF921FB54442D18", wide);  // -pi/2
  rest = p.make(RegKind::f64, "fma.rn.f64", n, "0dBC91A62633145C07", rest);
  const Reg r = min_nan(p, max_nan(p, p.f32("cvt.rn.f32.f64", rest), -1.0f), 1.0f);
  Reg q = p.b32("cvt.u32.u64", p.b64("cvt.rni.s64.f64", n));
  if (quarters != 0) q = p.b32("add.u32", q, quarters);
  const Reg z = p.f32("mul.rn.f32", r, r);
  const Reg s = polynomial(p, z, {-0.000195136206f, 0.00833214913f, -0.166666538f});
  const Reg sine = p.f32("fma.rn.f32", p.f32("mul.rn.f32", s, z), r, r);
  const Reg c = polynomial(p, z, {2.4431256e-05f, -0.00138873002f, 0.0416666456f, -0.5f});
  const Reg cosine = p.f32("fma.rn.f32", c, z, p.in_register(1.0f));
  const Reg odd = p.test("setp.ne.u32", p.b32("and.b32", q, 1), 0);
  const Reg y = p.f32("selp.f32", cosine, sine, odd);
  const Reg sign = p.b32("and.b32", p.b32("shl.b32", q, 30), "0x80000000");
  return p.f32("mov.b32", p.b32("xor.b32", p.b32("mov.b32", y), sign));
}

// e^(y log|x|), negative for negative x and odd y, NaN for negative x and a fraction y.
Reg power(Ptx& p, const Operand& x, const Operand& y) {
  const Reg size = p.f32("abs.f32", x);
  const Reg t = p.f32("mul.rn.f32", y, logarithm(p, size, Precision::full));
  const Reg e = exponential(p, t, Precision::full);
  const Reg half = p.f32("mul.rn.f32", y, Operand(0.5f));
  const Reg whole = p.test("setp.eq.f32", p.f32("cvt.rmi.f32.f32", y), y);
  const Reg odd = p.test("setp.ne.and.f32", p.f32("cvt.rmi.f32.f32", half), half, whole);
  const Reg with_sign = p.f32("selp.f32", p.f32("copysign.f32", x, e), e, odd);
  const Reg fraction = p.test("setp.ne.f32", p.f32("cvt.rmi.f32.f32", y), y);
  const Reg undefined = p.test("setp.lt.and.f32", x, Operand(0.0f), fraction);
  const Reg result =
      p.f32("selp.f32", Operand(std::numeric_limits<float>::quiet_NaN()), with_sign, undefined);
  const Reg one = p.test("setp.eq.f32", x, Operand(1.0f));
  const Reg trivial = p.test("setp.eq.or.f32", y, Operand(0.0f), one);
  return p.f32("selp.f32", Operand(1.0f), result, trivial);
}

// Near 0 x P(x^2), elsewhere 1 - 2^Q(|x|); P and Q fitted to the errors of the results.
Reg erf(Ptx& p, const Operand& x) {
  const Reg a = p.f32("abs.f32", x), z = p.f32("mul.rn.f32", x, x);
  const Reg q = polynomial(
      p, z,
      {-0.00056314189f, 0.00491755083f, -0.0267113112f, 0.112801798f, -0.37612325f, 1.12837911f});
  const Reg near = p.f32("mul.rn.f32", q, x);
  const Reg b = p.f32("min.f32", a, Operand(4.0f));
  const Reg w = polynomial(p, b,
                           {-3.12875127e-05f, 0.000636713812f, -0.00606590044f, 0.0363678262f,
                            -0.156414941f, -0.913543224f, -1.62963724f, 0.00027128472f});
  Reg far = p.f32("sub.rn.f32", Operand(1.0f), p.f32("ex2.approx.ftz.f32", w));
  far = p.f32("copysign.f32", x, far);
  const Reg outside = p.test("setp.ge.f32", a, Operand(1.0f));
  return p.f32("selp.f32", far, near, outside);
}

// a if `compare` holds for (a, b), else b: as a < b ? a : b, with its way of treating NaN.
Reg choose(Ptx& p, std::string_view compare, const Operand& a, const Operand& b) {
  return p.f32("selp.f32", a, b, p.test(compare, a, b));
}

}  // namespace

Reg write_select_less(Ptx& p, std::span<const Operand> comparison, const Operand& yes,
                      const Operand& no) {
  return p.f32("selp.f32", yes, no, p.test("setp.lt.f32", comparison[0], comparison[1]));
}

Operand write_op(Ptx& p, ScalarOp op, std::span<const Operand> x, Precision precision) {
  std::vector<Operand> in(x.begin(), x.end());
  if (in.size() == 1) in[0] = p.in_register(in[0]);
  switch (op) {
    case ScalarOp::input:
    case ScalarOp::constant: return in[0];
    // Without .rn: the compiler may contract a product and a sum.
    case ScalarOp::add: return p.f32("add.f32", in[0], in[1]);
    case ScalarOp::sub: return p.f32("sub.f32", in[0], in[1]);
    case ScalarOp::mul: return p.f32("mul.f32", in[0], in[1]);
    case ScalarOp::div: return p.f32("div.full.f32", in[0], in[1]);
    case ScalarOp::min: return choose(p, "setp.lt.f32", in[0], in[1]);
    case ScalarOp::max: return choose(p, "setp.gt.f32", in[0], in[1]);
    case ScalarOp::less: return p.f32("set.lt.f32.f32", in[0], in[1]);
    case ScalarOp::pow: return power(p, p.in_register(in[0]), p.in_register(in[1]));
    case ScalarOp::neg: return p.f32("neg.f32", in[0]);
    case ScalarOp::abs: return p.f32("abs.f32", in[0]);
    case ScalarOp::sqrt: return p.f32("sqrt.approx.f32", in[0]);
    case ScalarOp::rsqrt: return p.f32("rsqrt.approx.f32", in[0]);
    case ScalarOp::exp: return exponential(p, in[0], precision);
    case ScalarOp::log: return logarithm(p, in[0], precision);
    case ScalarOp::sin: return sine(p, in[0], 0);
    case ScalarOp::cos: return sine(p, in[0], 1);
    case ScalarOp::tanh: return tanh(p, in[0]);
    case ScalarOp::sigmoid: return sigmoid(p, in[0], precision);
    case ScalarOp::erf: return erf(p, in[0]);
    case ScalarOp::floor: return p.f32("cvt.rmi.f32.f32", in[0]);
    case ScalarOp::select:
      return p.f32("selp.f32", in[1], in[2], p.test("setp.neu.f32", in[0], Operand(0.0f)));
  }
  fail("ptx: unknown function");
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

}  // namespace ebb::cuda
