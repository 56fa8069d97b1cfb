#include "ops/timestep_embedding/op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/fourier_embedding/op.h"
#include "support/files.h"
#include "support/one_op.h"

namespace ebb {
namespace {

using test::run_one;

std::vector<double> embed(double t, int64_t dim, const ops::TimestepEmbedding& attrs) {
  return run_one({{{1}, {t}}}, [&](auto x) { return ops::timestep_embedding(x[0], dim, attrs); }).v;
}

TEST(timestep_embedding, default__is_cosines_then_sines_without_endpoint) {
  const auto e = embed(3, 4, {.max_period = 100});
  const double want[] = {std::cos(3.0), std::cos(0.3), std::sin(3.0), std::sin(0.3)};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(e[i], want[i], 1e-12);
}

TEST(timestep_embedding, endpoint__ends_at_the_longest_period) {
  const auto e = embed(3, 6, {.max_period = 100, .cos_first = false, .endpoint = true});
  const double want[] = {std::sin(3.0), std::sin(0.3), std::sin(0.03),
                         std::cos(3.0), std::cos(0.3), std::cos(0.03)};
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(e[i], want[i], 1e-12);
}

TEST(timestep_embedding, odd_dim__says_so) {
  EXPECT_EQ(testing::error_of([] { embed(1, 5, {}); }),
            "timestep_embedding: dim must be even (5)  at ");
}

TEST(fourier_embedding, turns__are_whole_at_whole_products) {
  const auto e = run_one({{{1}, {0.5}}, {{2}, {2, 0.5}}},
                         [](auto x) { return ops::fourier_embedding(x[0], x[1]); });
  const double want[] = {1, 0, 0, 1};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(e.v[i], want[i], 1e-12);
}

}  // namespace
}  // namespace ebb
