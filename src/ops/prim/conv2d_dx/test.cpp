// What the derived tests cannot know: that the transposed convolution is the usual one.
#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/prim/conv2d_dx/op.h"

namespace ebb::ops {
namespace {

// The values of the only node of a graph, from its slow meaning.
std::vector<double> evaluate(const Graph& g, std::span<const RefArray> in) {
  const Signature s = g.signature(g.nodes().at(0));
  std::vector<RefArray> out{{s.out[0].shape, {}}};
  out[0].v.resize(static_cast<size_t>(out[0].shape.numel()));
  s.op->reference(s, in, out);
  return out[0].v;
}

TEST(conv_transpose2d, stride_2_padding_1_extra_1__equals_torch) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {1, 2, 2, 1}});
  const Value w = g.input("w", {DType::f32, {1, 3, 3, 1}});
  const Value y =
      conv_transpose2d(x, w, {}, ConvTranspose2d{.stride = 2, .pad = {1, 1, 1, 1}, .extra = 1});
  EXPECT_EQ(y.shape(), (Shape{1, 4, 4, 1}));
  const RefArray in[] = {{x.shape(), {1, 2, 3, 4}}, {w.shape(), {1, 2, 3, 4, 5, 6, 7, 8, 9}}};
  // torch 2.11: conv_transpose2d(x, w, stride=2, padding=1, output_padding=1)
  EXPECT_EQ(evaluate(g, in),
            (std::vector<double>{5, 14, 10, 12, 14, 36, 24, 30, 15, 34, 20, 24, 24, 55, 32, 36}));
}

TEST(conv_transpose2d, stride_2__doubles_and_adds_the_kernel) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 5, 3, 7}});
  const Value w = g.input("w", {DType::f32, {7, 4, 2, 3}});
  const Value y = conv_transpose2d(x, w, {}, ConvTranspose2d{.stride = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 12, 6, 3}));
}

TEST(conv_transpose2d, channels_differ__says_so) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 5, 3, 7}});
  const Value w = g.input("w", {DType::f32, {3, 2, 2, 7}});
  g.at("up.0");
  try {
    conv_transpose2d(x, w);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "conv_transpose2d: channels must agree (7 and 3)  x: f32[2,5,3,7]  w: "
                 "f32[3,2,2,7]  at up.0");
  }
}

}  // namespace
}  // namespace ebb::ops
