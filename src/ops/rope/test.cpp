// rope and its tables against the public formulas, which tools/golden/rope_golden.py writes out.
#include "ops/rope/op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/rope/tables.h"
#include "support/files.h"
#include "support/golden_file.h"
#include "support/one_op.h"

namespace ebb {
namespace {

using test::run_one;
using testing::error_of;

std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

// x [1,T,A,D] of the golden file rotated as its case says.
void expect_golden(const std::string& name, bool half_split) {
  const auto file = testing::read_golden("rope");
  const auto& c = file.at(name);
  const auto widths = c.at("axes").get<std::vector<int64_t>>();
  const auto thetas = c.at("theta").get<std::vector<double>>();
  std::vector<ops::RopeAxis> axes;
  int64_t width = 0;
  for (size_t i = 0; i < widths.size(); ++i, width += widths[i - 1])
    axes.push_back({.width = widths[i], .theta = thetas[i]});
  const auto tables = ops::rope_tables(axes, c.at("positions").get<std::vector<double>>());
  const auto x = file.at("x").get<std::vector<double>>(),
             want = c.at("y").get<std::vector<double>>();
  const int64_t heads = file.at("heads").get<int64_t>();
  const test::Input in{{1, tables.shape[0], heads, width}, x};
  const auto rotated = [&](const test::Input& by, bool inverse) {
    return run_one({by, {tables.shape, doubles(tables.cos)}, {tables.shape, doubles(tables.sin)}},
                   [&](auto v) {
                     return ops::rope(v[0], v[1], v[2],
                                      {.half_split = half_split, .inverse = inverse});
                   });
  };
  const RefArray y = rotated(in, false), back = rotated({in.shape, y.v}, true);
  ASSERT_EQ(y.v.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(y.v[i], want[i], 2e-7) << i;  // tables are f32
    EXPECT_NEAR(back.v[i], x[i], 2e-7) << i;
  }
}

TEST(rope, half_split__is_llamas) { expect_golden("llama", true); }
TEST(rope, interleaved__is_fluxs) { expect_golden("flux", false); }

TEST(rope, elements_beyond_the_pairs__stay) {
  for (const bool half_split : {false, true}) {
    const auto y =
        run_one({{{1, 1, 1, 5}, {1, 2, 3, 4, 5}}, {{1, 1}, {0}}, {{1, 1}, {1}}},
                [&](auto v) { return ops::rope(v[0], v[1], v[2], {.half_split = half_split}); });
    EXPECT_EQ(y.v, (std::vector<double>{-2, 1, 3, 4, 5})) << half_split;
  }
}

TEST(rope, types__name_what_is_wrong) {
  const auto of = [](Shape x, Shape cos, Shape sin) {
    return error_of([&] {
      Graph g;
      ops::rope(g.input("x", {DType::f32, x}), g.input("cos", {DType::f32, cos}),
                g.input("sin", {DType::f32, sin}));
    });
  };
  EXPECT_EQ(of({2, 3, 4, 8}, {3, 4}, {3, 4}), "");
  EXPECT_NE(of({2, 3}, {3, 4}, {3, 4}).find("takes floats x [N,T,...,D]"), std::string::npos);
  EXPECT_NE(of({2, 3, 8}, {3, 4}, {3, 2}).find("of one type"), std::string::npos);
  for (const Shape& table : {Shape{5, 4}, Shape{3, 3, 4}, Shape{1, 1, 3, 4}})
    EXPECT_NE(of({2, 3, 8}, table, table).find("with N 2 or 1 and T 3"), std::string::npos);
  EXPECT_NE(of({2, 3, 8}, {3, 5}, {3, 5}).find("(D 8, pairs 5)"), std::string::npos);
}

TEST(rope_tables, axes__are_side_by_side_and_scaled) {
  const std::vector<ops::RopeAxis> axes = {{.width = 2}, {.width = 4, .theta = 100, .scale = 0.5}};
  const auto t = ops::rope_tables(axes, std::vector<double>{0, 0, 3, 4});
  EXPECT_EQ(t.shape, (Shape{2, 3}));
  const double angles[] = {0, 0, 0, 3, 2, 0.2};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_FLOAT_EQ(t.cos[i], static_cast<float>(std::cos(angles[i]))) << i;
    EXPECT_FLOAT_EQ(t.sin[i], static_cast<float>(std::sin(angles[i]))) << i;
  }
}

TEST(rope_tables, faults__are_named) {
  const auto of = [](std::vector<ops::RopeAxis> axes, std::vector<double> positions) {
    return error_of([&] { ops::rope_tables(axes, positions); });
  };
  const ops::RopeAxis good{.width = 4};
  EXPECT_EQ(of({good}, {1, 2}), "");
  EXPECT_NE(of({}, {}).find("1 to 4 axes (got 0)"), std::string::npos);
  EXPECT_NE(of({good, good}, {1, 2, 3}).find("2 coordinates (got 3"), std::string::npos);
  EXPECT_NE(of({good, {.width = 3}}, {}).find("must be even (got 3 for axis 1)"),
            std::string::npos);
  EXPECT_NE(of({{.width = 4, .theta = 0}}, {}).find("must be positive (got 0 and 1"),
            std::string::npos);
}

TEST(grid_positions, cells__are_row_major) {
  EXPECT_EQ(ops::grid_positions(std::vector<int64_t>{1, 2, 3}),
            (std::vector<double>{0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 1, 0, 0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(ops::grid_positions(std::vector<int64_t>{1, 2}, std::vector<double>{7, -1}),
            (std::vector<double>{7, -1, 7, 0}));
}

}  // namespace
}  // namespace ebb
