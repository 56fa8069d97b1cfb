#include "train/kernel_distance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "base/error.h"
#include "base/random.h"

namespace ebb::train {
namespace {

class KernelDistanceOn : public test::OnEachBackend {};
INSTANTIATE_TEST_SUITE_P(cpu, KernelDistanceOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, KernelDistanceOn, ::testing::ValuesIn(test::only("cuda")));

Tensor normals(int64_t n, int64_t d, double mean, uint64_t seed) {
  Tensor t(DType::f32, {n, d});
  fill_normal({.seed = seed}, 0, t.span<float>());
  for (float& v : t.span<float>()) v += static_cast<float>(mean);
  return t;
}

// By its definition, in double.
double by_definition(const Tensor& x, const Tensor& y) {
  const int64_t n = x.shape()[0], d = x.shape()[1];
  const auto sum = [&](const Tensor& a, const Tensor& b, bool with_itself) {
    double out = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        if (i == j && !with_itself) continue;
        double dot = 0;
        for (int64_t k = 0; k < d; ++k)
          dot += double{a.span<float>()[static_cast<size_t>(i * d + k)]} *
                 double{b.span<float>()[static_cast<size_t>(j * d + k)]};
        out += std::pow(dot / static_cast<double>(d) + 1, 3);
      }
    return out;
  };
  const auto m = static_cast<double>(n);
  return (sum(x, x, false) + sum(y, y, false)) / (m * (m - 1)) - 2 * sum(x, y, true) / (m * m);
}

TEST_P(KernelDistanceOn, whole_sets__equal_the_definition) {
  const Tensor a = normals(30, 7, 0, 1), b = normals(30, 7, 0.5, 2);
  const KernelDistance k = kernel_distance(a, b, context_);
  EXPECT_EQ(k.subsets, 1);
  EXPECT_EQ(k.subset_size, 30);
  EXPECT_NEAR(k.mean, by_definition(a, b), 1e-5 * std::abs(by_definition(a, b)));
}

TEST_P(KernelDistanceOn, subsets__agree_with_the_whole_within_their_error) {
  const Tensor a = normals(600, 8, 0, 1), b = normals(400, 8, 0.5, 2);
  const KernelDistance k = kernel_distance(a, b, context_, {.subsets = 50, .subset_size = 100});
  EXPECT_EQ(k.subsets, 50);
  EXPECT_EQ(k.subset_size, 100);
  EXPECT_GT(k.deviation, 0);
  const double whole = kernel_distance(a.rows(0, 400), b, context_).mean;
  EXPECT_NEAR(k.mean, whole, k.deviation);
  EXPECT_EQ(kernel_distance(a, b, context_, {.subsets = 50, .subset_size = 100}).mean, k.mean);
  EXPECT_NE(kernel_distance(a, b, context_, {.subsets = 50, .subset_size = 100, .seed = 1}).mean,
            k.mean);
}

TEST_P(KernelDistanceOn, same_distribution__is_nothing_whatever_the_number) {
  double sum = 0;
  for (uint64_t s = 0; s < 40; ++s)
    sum += kernel_distance(normals(20, 4, 0, 2 * s), normals(20, 4, 0, 2 * s + 1), context_).mean;
  EXPECT_NEAR(sum / 40, 0, 0.1);  // unbiased: the same without a diagonal would be 0.6 too large
}

TEST(kernel_distance, one_image__says_so) {
  const Tensor a = normals(1, 4, 0, 1), b = normals(9, 4, 0, 2);
  EXPECT_THROW(kernel_distance(a, b, {}), Error);
  EXPECT_THROW(kernel_distance(b, normals(9, 5, 0, 2), {}), Error);
}

}  // namespace
}  // namespace ebb::train
