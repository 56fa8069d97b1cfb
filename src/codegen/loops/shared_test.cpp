// Launches that several uses of a generated kernel share give the bits of a launch each.
#include <gtest/gtest.h>

#include <functional>

#include "codegen/loops/map_strided.h"
#include "codegen/loops/row_kernel.h"
#include "support/expressions.h"
#include "support/host_loops.h"

namespace ebb::codegen {
namespace {

using testing::in;
using testing::target;

Target of_one_sm() {
  Target t = target;
  t.sm_count = 1;
  return t;
}

// Queries or keys [2,3,heads,64], their partners, two tables that heads share.
struct Heads {
  Shape shape;
  std::vector<Type> in;
  IterationSpace space;

  Heads(int64_t heads, int64_t row_dims) : shape{2, 3, heads, 64} {
    const Type x{DType::bf16, shape}, table{DType::f32, {3, 1, 64}};
    in = {x, x, table, table};
    std::vector<Type> all = in;
    all.push_back({DType::f32, shape});
    std::vector<bool> reduced(4);
    std::fill(reduced.end() - row_dims, reduced.end(), true);
    space = make_iteration_space(shape, all, reduced);
  }
};

bool all_equal(const std::vector<int64_t>& heads) {
  return std::ranges::all_of(heads, [&](int64_t n) { return n == heads[0]; });
}

std::vector<LoopKernel> maps(const std::vector<int64_t>& heads, int uses, int most_steps) {
  const Scalar r[] = {in(0) * in(2) + in(1) * in(3)};
  std::vector<LoopKernel> kernels;
  for (const int64_t n : heads) {
    const Heads h(n, 0);
    StridedForm f{Expr(4, r), {}, {DType::bf16}, h.space, h.shape.numel()};
    for (const Type& t : h.in) f.in.push_back(t.dtype);
    f.swaps.runs = {0, 32, 0, 0};
    f.uses = uses;
    f.alternate = uses > 1 && all_equal(heads);
    f.most_steps = most_steps;
    kernels.push_back(write_strided(f, target));
  }
  return kernels;
}

// `pairs`: sums over pairs of rows.
std::vector<LoopKernel> rows(const std::vector<int64_t>& heads, int uses, bool pairs) {
  const Scalar rstd = rsqrt(in(4) * (1.0 / 64) + 1e-3);
  const Scalar r[] = {in(0) * in(0), rstd * (in(0) * in(2) + in(1) * in(3))};
  std::vector<LoopKernel> kernels;
  for (const int64_t n : heads) {
    const Heads h(n, 1);
    RowForm f{.expr = Expr(5, r),
              .in = {},
              .out = {pairs ? DType::f32 : DType::bf16},
              .maximum = {false},
              .extents = {pairs ? RowExtent::partial : RowExtent::element},
              .partial_rows = pairs ? 2 : 0,
              .space = h.space};
    for (const Type& t : h.in) f.in.push_back(t.dtype);
    f.swaps.runs = {0, 32, 0, 0};
    f.uses = uses;
    f.alternate = uses > 1 && all_equal(heads);
    f.shared_rows = 48;
    kernels.push_back(write_rows(f, row_layout(f, of_one_sm()), target));
  }
  return kernels;
}

// x, x, two tables and the result, of each use.
struct Tensors {
  std::vector<Buffer> in, out;
  Tensors(const std::vector<int64_t>& heads, bool pairs) {
    for (const int64_t n : heads) {
      const auto seed = static_cast<int>(in.size());
      in.push_back(Buffer::random(DType::bf16, 6 * n * 64, seed));
      in.push_back(in.back().copy());
      for (const int s : {1, 2}) in.push_back(Buffer::random(DType::f32, 3 * 64, seed + s));
      out.emplace_back(pairs ? DType::f32 : DType::bf16, (pairs ? 3 : 6) * n * 64);
    }
  }
  // The parameters of use u.
  Parameters parameters(const LoopKernel& use, size_t u) {
    Parameters p = use.parameters;
    for (size_t k = 0; k < 4; ++k) p.set(use.pointers[k], in[4 * u + use.used[k]].data());
    p.set(use.pointers[4], out[u].data());
    return p;
  }
};

void expect_bits_of_single_launches(const std::vector<int64_t>& heads,
                                    const std::vector<LoopKernel>& alone,
                                    const std::vector<LoopKernel>& shared, bool pairs = false) {
  ASSERT_TRUE(share_a_launch(std::span(shared)));
  Tensors want(heads, pairs), got(heads, pairs);
  SharedLaunch launch(static_cast<int>(heads.size()), shared[0].parameters.size());
  for (size_t u = 0; u < heads.size(); ++u) {
    Parameters p = want.parameters(alone[u], u);
    testing::interpret(alone[u].kernel, p.data(),
                       {.blocks = static_cast<int>(alone[u].blocks), .threads = alone[u].threads});
    launch.add(got.parameters(shared[u], u), shared[u].blocks);
  }
  ASSERT_EQ(launch.parameters().size(), shared[0].kernel.parameter_bytes);
  testing::interpret(shared[0].kernel, launch.parameters().data(),
                     {.blocks = static_cast<int>(launch.blocks()), .threads = shared[0].threads});
  for (size_t u = 0; u < heads.size(); ++u)
    for (int64_t i = 0; i < got.out[u].count(); ++i)
      ASSERT_EQ(got.out[u].get(i), want.out[u].get(i)) << "use " << u << ", element " << i;
}

TEST(shared_launch, maps_of_several_sizes__give_the_bits_of_a_launch_each) {
  for (const std::vector<int64_t>& heads : {std::vector<int64_t>{8, 2}, {2, 8}, {4, 2, 8}, {4, 4}})
    expect_bits_of_single_launches(heads, maps(heads, 1, 2),
                                   maps(heads, static_cast<int>(heads.size()), 2));
}

TEST(shared_launch, rows_of_several_numbers__give_the_bits_of_a_launch_each) {
  for (const std::vector<int64_t>& heads :
       {std::vector<int64_t>{5, 2}, {2, 3}, {2, 3, 4, 2}, {3, 3}, {2, 2, 2, 2}})
    expect_bits_of_single_launches(heads, rows(heads, 1, false),
                                   rows(heads, static_cast<int>(heads.size()), false));
  for (const std::vector<int64_t>& heads : {std::vector<int64_t>{4, 2}, {2, 2}})
    expect_bits_of_single_launches(heads, rows(heads, 1, true), rows(heads, 2, true), true);
}

TEST(shared_launch, uses_of_other_forms__share_no_launch) {
  const std::vector<LoopKernel> kernels = maps({8, 1}, 2, 2);  // one head: the space has a dim less
  EXPECT_FALSE(share_a_launch(std::span(kernels)));
}

TEST(SharedLaunch, of_one_use__is_its_parameters) {
  Parameters use;
  use.add_value(uint64_t{7});
  use.add_value(uint32_t{9});
  SharedLaunch one(1, use.size()), two(2, use.size());
  one.add(use, 3);
  EXPECT_EQ(one.parameters().size(), SharedLaunch::bytes(1, use.size()));
  EXPECT_EQ(*static_cast<const uint64_t*>(one.parameters().data()), 7) << "no header";
  two.add(use, 3);
  two.add(use, 4);
  EXPECT_EQ(two.parameters().size(), SharedLaunch::bytes(2, use.size()));
  EXPECT_EQ(two.blocks(), 7);
}

TEST(SharedLaunch, too_many_parameters__are_no_launch) {
  std::vector<LoopKernel> kernels = maps({4, 2}, 2, 0);
  EXPECT_TRUE(share_a_launch(std::span<const LoopKernel>(kernels)));
  for (LoopKernel& t : kernels)
    while (t.parameters.size() < 2048) t.parameters.add_value(uint64_t{0});
  EXPECT_FALSE(share_a_launch(std::span<const LoopKernel>(kernels)));
}

}  // namespace
}  // namespace ebb::codegen
