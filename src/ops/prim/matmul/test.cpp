// Errors of matmul and conv2d; what they compute is tested from their examples.
#include <gtest/gtest.h>

#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"
#include "support/files.h"

namespace ebb::ops {
namespace {

using testing::error_of;

Value input(Graph& g, Shape shape, DType dtype = DType::f32) {
  return g.input(g.fresh_name("x"), {dtype, std::move(shape)});
}

TEST(linear, wrong_width__names_sizes_operands_and_place) {
  Graph g;
  g.at("blocks.3.mlp");
  const Value x = input(g, {2, 5, 7}), w = input(g, {3, 11});
  EXPECT_EQ(error_of([&] { linear(x, w); }),
            "matmul: inner sizes must be equal and positive (7 and 11)  a: f32[2,5,7]  b: "
            "f32[3,11] transposed  at blocks.3.mlp");
}

TEST(matmul, dtypes_differ__says_so) {
  Graph g;
  const Value a = input(g, {2, 3}, DType::bf16), b = input(g, {3, 4});
  EXPECT_EQ(error_of([&] { matmul(a, b); }),
            "matmul: b must have a's float dtype, or be narrower than f32 (bf16 and f32)  a: "
            "bf16[2,3]  b: f32[3,4]  at ");
}

TEST(matmul, batches_differ__says_so) {
  Graph g;
  const Value a = input(g, {2, 5, 3}), b = input(g, {4, 3, 7});
  EXPECT_EQ(error_of([&] { matmul(a, b); }),
            "matmul: leading dims must be equal, or a or b of rank 2  a: f32[2,5,3]  b: "
            "f32[4,3,7]  at ");
}

TEST(linear, vector__gives_vector) {
  Graph g;
  EXPECT_EQ(linear(input(g, {3}), input(g, {5, 3})).shape(), Shape{5});
}

TEST(conv2d, kernel_outside_image__says_so) {
  Graph g;
  const Value x = input(g, {1, 2, 5, 3}), w = input(g, {4, 5, 5, 3});
  EXPECT_EQ(error_of([&] {
              conv2d(x, w, {}, Conv2d{.pad = {1, 0, 1, 0}});
            }),
            "conv2d: the kernel (5x5) must fit into the padded image (4x5)  images: [1,2,5,3]  "
            "weights: [4,5,5,3]  at ");
}

TEST(conv2d, stride_0__says_so) {
  Graph g;
  const Value x = input(g, {1, 2, 5, 3}), w = input(g, {4, 1, 1, 3});
  EXPECT_EQ(error_of([&] { conv2d(x, w, {}, Conv2d{.stride = 0}); }),
            "conv2d: stride must be positive (0)  images: [1,2,5,3]  weights: [4,1,1,3]  at ");
}

}  // namespace
}  // namespace ebb::ops
