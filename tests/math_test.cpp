// The CPU's elementary functions against double, over their whole range, at every level that this
// machine can run.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "backend/cpu/simd/levels.h"

namespace ebb::cpu::math_test {
namespace {

struct Level {
  std::string name;
  const Loops* loops;
};

std::vector<Level> levels() {
  std::vector<Level> out = {{"base", &loops_base}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    out.push_back({"v3", &loops_v3});
  if (&loops() == &loops_v4) out.push_back({"v4", &loops_v4});
#endif
  return out;
}

struct Range {
  std::string name;
  ScalarOp op;
  double low, high;
  double ulps;               // largest error
  bool logarithmic = false;  // points are even in log |x|
};

// docs/numerics.md has the errors as measured.
const std::vector<Range>& ranges() {
  static const std::vector<Range> list = {
      {"exp", ScalarOp::exp, -87, 88.7, 2},
      {"log", ScalarOp::log, 1e-37, 1e38, 3, true},
      {"log_near_one", ScalarOp::log, 0.5, 2, 3},
      {"sqrt", ScalarOp::sqrt, 1e-37, 1e38, 0.5, true},
      {"rsqrt", ScalarOp::rsqrt, 1e-37, 1e38, 1.5, true},
      {"sigmoid", ScalarOp::sigmoid, -80, 80, 3},
      {"tanh", ScalarOp::tanh, -12, 12, 3},
      {"tanh_small", ScalarOp::tanh, 1e-30, 1, 3, true},
      {"erf", ScalarOp::erf, -6, 6, 3},
      {"erf_small", ScalarOp::erf, 1e-30, 1, 3, true},
  };
  return list;
}

std::vector<float> points(const Range& r, int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) {
    const double t = (i + 0.5) / count;
    x.push_back(static_cast<float>(r.logarithmic ? r.low * std::pow(r.high / r.low, t)
                                                 : r.low + (r.high - r.low) * t));
  }
  return x;
}

double ulp_of(double y) {
  const auto f = static_cast<float>(std::fabs(y));
  return static_cast<double>(std::nextafter(f, std::numeric_limits<float>::infinity())) - f;
}

std::vector<float> run(const Level& l, ScalarOp op, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  l.loops->map[static_cast<size_t>(op)](y.data(), x.data(), x.data(), x.data(),
                                        static_cast<int64_t>(x.size()));
  return y;
}

TEST(math, functions__are_within_their_stated_error) {
  for (const Level& l : levels())
    for (const Range& r : ranges()) {
      const auto x = points(r, 200003);
      const auto y = run(l, r.op, x);
      double worst = 0, at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = evaluate(r.op, x[i], 0, 0);
        const double error = std::fabs(y[i] - exact) / ulp_of(exact);
        if (!(error <= worst)) worst = error, at = x[i];
      }
      EXPECT_LE(worst, r.ulps) << r.name << " at " << at << ", level " << l.name;
    }
}

// Near their zeros sine and cosine have an absolute error.
TEST(math, sine_and_cosine__are_within_their_stated_error) {
  for (const Level& l : levels())
    for (const ScalarOp op : {ScalarOp::sin, ScalarOp::cos})
      for (const double high : {1.0, 100.0, 10000.0}) {
        const auto x = points({"", op, -high, high, 0}, 200003);
        const auto y = run(l, op, x);
        double worst = 0;
        for (size_t i = 0; i < x.size(); ++i)
          worst = std::max(worst, std::fabs(y[i] - evaluate(op, x[i], 0, 0)));
        EXPECT_LE(worst, 1e-7) << high << ", level " << l.name;
      }
}

TEST(math, ends__are_as_in_ieee) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  struct Point {
    ScalarOp op;
    float x, y;
  };
  const Point list[] = {
      {ScalarOp::exp, inf, inf},    {ScalarOp::exp, -inf, 0},     {ScalarOp::exp, 0, 1},
      {ScalarOp::exp, 1000, inf},   {ScalarOp::exp, -1000, 0},    {ScalarOp::log, 0, -inf},
      {ScalarOp::log, inf, inf},    {ScalarOp::log, 1, 0},        {ScalarOp::log, -1, nan},
      {ScalarOp::sqrt, inf, inf},   {ScalarOp::sqrt, -1, nan},    {ScalarOp::rsqrt, inf, 0},
      {ScalarOp::tanh, inf, 1},     {ScalarOp::tanh, -inf, -1},   {ScalarOp::tanh, 0, 0},
      {ScalarOp::sigmoid, inf, 1},  {ScalarOp::sigmoid, -inf, 0}, {ScalarOp::sigmoid, 0, 0.5f},
      {ScalarOp::erf, inf, 1},      {ScalarOp::erf, -inf, -1},    {ScalarOp::erf, 0, 0},
      {ScalarOp::floor, -0.5f, -1}, {ScalarOp::floor, inf, inf},  {ScalarOp::abs, -inf, inf},
      {ScalarOp::sin, 0, 0},        {ScalarOp::cos, 0, 1},
  };
  for (const Level& l : levels()) {
    for (const Point& p : list) {
      const float y = run(l, p.op, {p.x})[0];
      EXPECT_TRUE(y == p.y || (std::isnan(y) && std::isnan(p.y)))
          << info_of(p.op).name << '(' << p.x << ") is " << y << ", level " << l.name;
    }
    for (int op = static_cast<int>(ScalarOp::neg); op <= static_cast<int>(ScalarOp::f16); ++op)
      EXPECT_TRUE(std::isnan(run(l, static_cast<ScalarOp>(op), {nan})[0]))
          << info_of(static_cast<ScalarOp>(op)).name << " loses a NaN, level " << l.name;
  }
}

// Every kind of f32 in reach: both sides of ties, numbers below the least normal one, the largest.
TEST(math, rounding__is_that_of_the_dtypes) {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          65504.0f,
                          65519.996f,
                          65520.0f,
                          1e30f,
                          6.1e-5f,
                          2.98e-8f,
                          2.99e-8f,
                          8.9e-8f,
                          3.4e38f,
                          1e-45f,
                          std::numeric_limits<float>::infinity()};
  for (uint32_t bits = 0x2f000000u; bits < 0x48000000u; bits += 0x7ffu)
    x.push_back(std::bit_cast<float>(bits));
  for (size_t i = 0, n = x.size(); i < n; ++i) x.push_back(-x[i]);
  for (const Level& l : levels()) {
    const auto in_bf16 = run(l, ScalarOp::bf16, x), in_f16 = run(l, ScalarOp::f16, x);
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(in_bf16[i], static_cast<float>(bf16(x[i]))) << x[i] << ", level " << l.name;
      ASSERT_EQ(in_f16[i], static_cast<float>(f16(x[i]))) << x[i] << ", level " << l.name;
      ASSERT_EQ(std::signbit(in_f16[i]), std::signbit(x[i])) << x[i];
    }
  }
}

// All tails of the vector loops.
TEST(math, every_length__gives_the_same_elements) {
  const auto x = points({"", ScalarOp::exp, -5, 5, 0}, 70);
  for (const Level& l : levels()) {
    const auto all = run(l, ScalarOp::exp, x);
    for (size_t n = 0; n < x.size(); ++n) {
      const auto y = run(l, ScalarOp::exp, std::vector<float>(x.begin(), x.begin() + n));
      for (size_t i = 0; i < n; ++i) EXPECT_EQ(y[i], all[i]) << n;
    }
  }
}

}  // namespace
}  // namespace ebb::cpu::math_test
