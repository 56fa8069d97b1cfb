// What the derived tests cannot know: ties go to the first maximum, as in torch (2.11).
#include <gtest/gtest.h>

#include "ops/prim/max_pool_grad/op.h"

namespace ebb::ops {
namespace {

TEST(max_pool_grad, ties__first_in_row_order) {
  Graph g;
  const MaxPool attrs{.window = 2, .stride = 1};
  const Value x = g.input("x", {DType::f32, {1, 3, 4, 1}});
  const Value dy = g.input("dy", {DType::f32, {1, 2, 3, 1}});
  max_pool_grad(x, dy, attrs);
  const Signature s = g.signature(g.nodes().at(0));
  const std::vector<RefArray> in{{x.shape(), {1, 1, 0, 2, 1, 1, 2, 2, 0, 0, 0, 0}},
                                 {dy.shape(), {1, 2, 3, 4, 5, 6}}};
  std::vector<RefArray> out{{x.shape(), std::vector<double>(12)}};
  s.op->reference(s, in, out);
  EXPECT_EQ(out[0].v, (std::vector<double>{1, 0, 0, 3, 4, 0, 13, 0, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace ebb::ops
