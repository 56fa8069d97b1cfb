// What the derived tests cannot know: that the maps are those of torch (2.11) and EDM.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/prim/resample/op.h"

namespace ebb::ops {
namespace {

// The values of the only node of a graph made by `build` from one image of one channel.
template <class Build>
std::vector<double> evaluate(std::pair<int64_t, int64_t> size, std::vector<double> x, Build build) {
  Graph g;
  build(g.input("x", {DType::f32, {1, size.first, size.second, 1}}));
  const Signature s = g.signature(g.nodes().at(0));
  const std::vector<RefArray> in{{s.in[0].shape, std::move(x)}};
  std::vector<RefArray> out{{s.out[0].shape, {}}};
  out[0].v.resize(static_cast<size_t>(out[0].shape.numel()));
  s.op->reference(s, in, out);
  return out[0].v;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)  // torch computed in f32
    EXPECT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i])) << i;
}

const std::vector<double> kImage{1, 2, 4, 8, 16, 32};  // [2,3]

TEST(resize_bilinear, larger__equals_interpolate) {
  expect_near(evaluate({2, 3}, kImage, [](Value x) { return resize_bilinear(x, 3, 5); }),
              {1, 1.4, 2, 3.2, 4, 4.5, 6.3, 9, 14.4, 18, 8, 11.2, 16, 25.6, 32});
}

TEST(resize_bilinear, smaller__equals_interpolate_without_antialiasing) {
  expect_near(evaluate({2, 3}, kImage, [](Value x) { return resize_bilinear(x, 1, 2); }),
              {5.625, 15.75});
}

TEST(resample, nearest_to_any_size__equals_interpolate) {
  const auto build = [](Value x) {
    return resample(x, {.kind = ResampleKind::nearest, .size = {3, 5}});
  };
  expect_near(evaluate({2, 3}, kImage, build), {1, 1, 2, 2, 4, 1, 1, 2, 2, 4, 8, 8, 16, 16, 32});
}

TEST(box_mean3, borders__leave_out_what_lies_outside_as_avg_pool2d_without_counting_pads) {
  expect_near(evaluate({2, 3}, kImage, [](Value x) { return box_mean3(x); }),
              {6.75, 10.5, 13.5, 6.75, 10.5, 13.5});
  expect_near(evaluate({1, 3}, {1, 2, 4}, [](Value x) { return box_mean3(x); }), {1.5, 7.0 / 3, 3});
}

TEST(fir_resample, up_1331__equals_transposed_depthwise_convolution_with_4f) {
  const auto build = [](Value x) { return fir_resample(x, Fir{.up = 2, .taps = {1, 3, 3, 1}}); };
  expect_near(
      evaluate({2, 3}, kImage, build),
      {0.5625, 0.9375, 1.3125,  1.875,  2.625,  2.25,  2.0625, 3.4375, 4.8125, 6.875, 9.625, 8.25,
       4.6875, 7.8125, 10.9375, 15.625, 21.875, 18.75, 4.5,    7.5,    10.5,   15,    21,    18});
}

TEST(fir_resample, up_uneven_taps__equals_transposed_depthwise_convolution_with_4f) {
  const auto build = [](Value x) { return fir_resample(x, Fir{.up = 2, .taps = {1, 2, 3}}); };
  expect_near(evaluate({2, 3}, kImage, build),
              {0.44444445, 1.11111116, 0.8888889, 2.22222233, 1.77777779, 2.44444442, 6.11111116,
               4.88888884, 12.22222233, 9.77777767, 3.55555558, 8.88888931, 7.11111116, 17.77777863,
               14.22222233});
}

TEST(fir_resample, down_1331__equals_depthwise_convolution_with_stride_2) {
  const auto build = [](Value x) { return fir_resample(x, Fir{.down = 2, .taps = {1, 3, 3, 1}}); };
  expect_near(evaluate({2, 4}, {1, 2, 4, 8, 16, 32, 64, 128}, build), {10.359375, 30.28125});
}

TEST(avg_pool2, odd_size__leaves_out_the_last_row_and_column) {
  expect_near(evaluate({3, 3}, {1, 2, 9, 3, 6, 9, 9, 9, 9}, [](Value x) { return avg_pool2(x); }),
              {3});
}

TEST(resample, unknown_kind__says_so) {
  try {
    (void)Attrs(Resample{}).parsed("{kind=cubic}");
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "resample: kind must be nearest, bilinear, average, box or fir (got 'cubic')");
  }
}

}  // namespace
}  // namespace ebb::ops
