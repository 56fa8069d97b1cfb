// The functions of generated code: their errors, with and without fused multiply-add, and what they
// make of infinities, NaN and large arguments.
#include "codegen/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/kernel_interpreter.h"

namespace ebb::codegen {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Kernel kernel_of(ScalarOp op, Precision precision) {
  Builder b("f", Target());
  const F32 x[] = {b.param<Kind::f32>(0), b.param<Kind::f32>(4)};
  const F32 y[] = {write_op(op, x, precision)};
  b.store(DType::f32, y, Address{b.param_pointer(8)});
  return b.finish(1, 0, 16);
}

// What a kernel of kernel_of gives.
float result_of(const Kernel& k, float x, float y, const testing::Arithmetic& how = {}) {
  float result = 0;
  struct {
    float x, y;
    float* to;
  } const parameters{x, y, &result};
  testing::interpret(k, &parameters, {.arithmetic = how});
  return result;
}

// Units in the last place between a result and the exact one.
double ulps(float got, double want) {
  if (std::isnan(want) || std::isinf(static_cast<float>(want)))
    return std::isnan(got) == std::isnan(want) && (std::isnan(got) || double{got} == want) ? 0
                                                                                           : 1e9;
  const float size = std::max(std::abs(static_cast<float>(want)), 1.17549435e-38f);
  return std::abs(double{got} - want) / (double{std::nextafter(size, infinity)} - double{size});
}

struct Range {
  ScalarOp op;
  double low, high;
  bool logarithmic = false;
  double most = 4;  // units in the last place
};

double largest_error(const Range& r, const testing::Arithmetic& how) {
  const Kernel k = kernel_of(r.op, Precision::full);
  constexpr int points = 1000;
  double worst = 0;
  for (int i = 0; i <= points; ++i) {
    const double t = static_cast<double>(i) / points;
    const double at =
        r.logarithmic ? r.low * std::pow(r.high / r.low, t) : r.low + (r.high - r.low) * t;
    const auto in = static_cast<float>(at);
    const double want = evaluate(r.op, double{in}, 0, 0);
    worst = std::max(worst, ulps(result_of(k, in, 0, how), want));
  }
  return worst;
}

// Of sine and cosine absolute, as they have zeros.
double largest_absolute_error(ScalarOp op, double high, bool fused) {
  const Kernel k = kernel_of(op, Precision::full);
  double worst = 0;
  constexpr int points = 1000;
  for (int i = -points; i <= points; ++i) {
    const auto in = static_cast<float>(high * i / points);
    const double want = evaluate(op, double{in}, 0, 0);
    worst = std::max(worst, std::abs(result_of(k, in, 0, {.fused = fused}) - want));
  }
  return worst;
}

// Whether a target fuses, and which way its approximate instructions err.
constexpr testing::Arithmetic targets[] = {{true, 0},  {true, 2},  {true, -2},
                                           {false, 0}, {false, 2}, {false, -2}};

TEST(codegen_math, functions__are_exact_to_a_few_units_in_the_last_place) {
  const Range ranges[] = {
      {ScalarOp::exp, -86.9, 88.7},
      {ScalarOp::exp, -1, 1},
      {ScalarOp::log, 1e-37, 1e38, true},
      {ScalarOp::log, 0.5, 2},
      {ScalarOp::tanh, -9, 9},
      {ScalarOp::tanh, 1e-6, 1, true},
      {ScalarOp::sigmoid, -80, 20, false, 4.5},
      {ScalarOp::erf, -4, 4},
      {ScalarOp::erf, 1e-6, 1, true},
  };
  for (const Range& r : ranges)
    for (const testing::Arithmetic& how : targets)
      EXPECT_LE(largest_error(r, how), r.most)
          << info_of(r.op).name << " on [" << r.low << ", " << r.high << "], fused " << how.fused
          << ", off by " << how.approximate;
}

// What ir.h says of exp2.
TEST(codegen_math, functions__need_exp2_near_0_only) {
  constexpr float beyond = 0x1p-12f;
  const Range ranges[] = {{ScalarOp::exp, -86.9, 88.7, false, 3.8},
                          {ScalarOp::tanh, -9, 9, false, 1.7},
                          {ScalarOp::sigmoid, -80, 20, false, 4.3},
                          {ScalarOp::erf, -4, 4, false, 2.3}};
  for (const Range& r : ranges)
    for (testing::Arithmetic how : targets)
      for (const float error : {beyond, -beyond}) {
        how.exp2_beyond = error;
        EXPECT_LE(largest_error(r, how), r.most)
            << info_of(r.op).name << ", fused " << how.fused << ", off by " << how.approximate;
      }
}

TEST(codegen_math, sine_and_cosine__are_exact_for_arguments_of_any_size) {
  for (const ScalarOp op : {ScalarOp::sin, ScalarOp::cos})
    for (const bool fused : {true, false})
      for (const double high : {1.0, 10.0, 1000.0, 6000.0, 6500.0, 1e5, 1e10, 1e20, 3e38})
        EXPECT_LE(largest_absolute_error(op, high, fused), 1.2e-7)
            << info_of(op).name << " to " << high << ", fused " << fused;
}

TEST(codegen_math, special_arguments__give_what_the_reference_gives) {
  const float special[] = {0.0f,    -0.0f, 1.0f,   -1.0f,    1e-40f,    88.7f, 90.0f,
                           -100.0f, 1e30f, -1e30f, infinity, -infinity, nan};
  for (const ScalarOp op :
       {ScalarOp::exp, ScalarOp::log, ScalarOp::sin, ScalarOp::cos, ScalarOp::tanh,
        ScalarOp::sigmoid, ScalarOp::erf, ScalarOp::floor, ScalarOp::bf16, ScalarOp::f16}) {
    const Kernel k = kernel_of(op, Precision::full);
    for (const float x : special) {
      const double want = evaluate(op, double{x}, 0, 0);
      const float got = result_of(k, x, 0);
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(got)) << info_of(op).name << ' ' << x;
      } else if (std::isinf(static_cast<float>(want))) {
        EXPECT_EQ(got, static_cast<float>(want)) << info_of(op).name << ' ' << x;
      } else {
        EXPECT_NEAR(got, want, 1e-6 * std::max(1.0, std::abs(want)))
            << info_of(op).name << ' ' << x;
      }
    }
  }
}

TEST(codegen_math, exp_of_0__is_1) {
  const Kernel k = kernel_of(ScalarOp::exp, Precision::full);
  for (const bool fused : {true, false}) EXPECT_EQ(result_of(k, 0, 0, {.fused = fused}), 1);
}

TEST(codegen_math, power__knows_its_special_cases) {
  const Kernel k = kernel_of(ScalarOp::pow, Precision::full);
  const float pairs[][2] = {
      {2, 10},        {-2, 3},          {-2, 2},       {-2, 0.5f},        {0, 0},
      {1, nan},       {nan, 0},         {0.5f, -3},    {1.5f, 20},        {0, 2},
      {0, -1},        {-0.0f, 3},       {10, -5},      {-infinity, 0.5f}, {-infinity, -0.5f},
      {-infinity, 3}, {-infinity, -3},  {infinity, 2}, {-1, infinity},    {-1, -infinity},
      {2, infinity},  {0.5f, infinity}, {-2, infinity}};
  for (const auto& [x, y] : pairs) {
    const double want = std::pow(double{x}, double{y});
    const float got = result_of(k, x, y);
    EXPECT_TRUE(std::isnan(want)   ? std::isnan(got)
                : std::isinf(want) ? double{got} == want
                                   : std::abs(got / want - 1) < 1e-5 || got == want)
        << x << "^" << y << " = " << got << ", not " << want;
  }
}

}  // namespace
}  // namespace ebb::codegen
