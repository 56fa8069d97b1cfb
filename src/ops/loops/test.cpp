// loops: what its attributes say as text, and which uses are refused.
#include <gtest/gtest.h>

#include "ops/loops/op.h"
#include "support/files.h"

namespace ebb {
namespace {

// Doubled tensors, each of its own shape.
ops::Loops doubled_loops(std::initializer_list<ops::LoopSizes> sizes) {
  const Scalar y[] = {2.0 * Scalar::input(0)};
  ops::Loops a{.loop = {.expr = Expr(1, y), .results = {{DType::f32}}}, .sizes = {}};
  for (const ops::LoopSizes& s : sizes) a.sizes.push_back(s);
  return a;
}

std::vector<Type> types_of_loops(const ops::Loops& a, std::vector<Type> in) {
  return ops::def::loops().infer({&ops::def::loops(), a, std::move(in), {}, "here"});
}

TEST(loops, sizes__are_a_text_that_reads_back) {
  ops::Loops a = doubled_loops({{{2, 3}, {}, {}}, {{}, {}, {}}, {{7}, {0, 8}, {8, 15}}});
  EXPECT_EQ(a.sizes.text(), "2x3,-,7:0-8:8-15");
  ListOf<ops::LoopSizes> read;
  read.parse(a.sizes.text());
  EXPECT_EQ(read.text(), a.sizes.text());
  EXPECT_EQ(read[1].shape.size(), 0U);
  for (const char* wrong : {"2xtwo", "2,,3", "7:0", "7:0-8-9"})
    testing::expect_error([&] { read.parse(wrong); }, "loops: sizes");
}

TEST(loops, results__have_the_shape_of_their_loop) {
  const Type small{DType::f32, {3}}, number{DType::f32, {}};
  EXPECT_EQ(types_of_loops(doubled_loops({{{3}, {}, {}}, {{}, {}, {}}}), {small, number}),
            (std::vector<Type>{small, number}));
}

TEST(loops, uses_that_do_not_fit__are_errors) {
  const Type small{DType::f32, {3}};
  testing::expect_error([&] { types_of_loops(doubled_loops({}), {}); },
                        "loops: there are none  at here");
  testing::expect_error(
      [&] {
        types_of_loops(doubled_loops({{{3}, {}, {}}}), {small, small});
      },
      "loops: 1 of them take 1 operands each (got 2)  at here");
  ops::Loops of_all = doubled_loops({{{3}, {}, {}}});
  of_all.loop.shape = {3};
  testing::expect_error(
      [&] { types_of_loops(of_all, {small}); },
      "loops: each has its own shape and ranges of slices, in sizes (got shape [3]");
}

}  // namespace
}  // namespace ebb
