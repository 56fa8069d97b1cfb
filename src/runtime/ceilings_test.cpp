// Per cent of the machine's limits: of the best that it did.
#include <gtest/gtest.h>

#include "runtime/op_bench.h"

namespace ebb {
namespace {

TEST(ceilings, work_below_them__its_share_of_the_nearer_one) {
  Ceilings c{.bytes_per_second = 100, .flops_f32 = 1000, .flops_bf16 = 4000};
  EXPECT_DOUBLE_EQ(c.percent({.bytes = 50, .flops = 0}, 1, {}), 50);
  EXPECT_DOUBLE_EQ(c.percent({.bytes = 10, .flops = 600}, 1, DType::f32), 60);
  EXPECT_DOUBLE_EQ(c.percent({.bytes = 10, .flops = 600}, 1, DType::bf16), 15);
  EXPECT_DOUBLE_EQ(c.percent({.bytes = 10, .flops = 600}, 1, {}), 10);  // no matrix work
  EXPECT_EQ(c.bytes_per_second, 100);
}

TEST(ceilings, work_above_one__raises_it_and_reaches_100_per_cent) {
  Ceilings c{.bytes_per_second = 100, .flops_f32 = 1000, .flops_bf16 = 4000};
  EXPECT_DOUBLE_EQ(c.percent({.bytes = 140, .flops = 0}, 1, {}), 100);
  EXPECT_DOUBLE_EQ(c.percent({.bytes = 70, .flops = 0}, 1, {}), 50);
  EXPECT_DOUBLE_EQ(c.percent({.bytes = 70, .flops = 3000}, 2, DType::f32), 100);
  EXPECT_EQ(c.flops_f32, 1500);
  EXPECT_EQ(c.flops_bf16, 4000);
}

TEST(ceilings, measured__no_case_is_above_them) {
  const Context context = open_context("cpu", {.threads = 1});
  Ceilings c{.bytes_per_second = 1, .flops_f32 = 1, .flops_bf16 = 1};
  int64_t cases = 0;
  bench_ops(context, "attention/dit", c, [&](const BenchResult& r) {
    ++cases;
    EXPECT_LE(r.peak_percent, 100 + 1e-9) << r.op << '/' << r.example;
    EXPECT_GT(r.peak_percent, 0);
  });
  EXPECT_GT(cases, 0);
}

}  // namespace
}  // namespace ebb
