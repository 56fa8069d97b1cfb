// Changes of low rank beside what they change: the same numbers, and no gradient of what stays.
#include "passes/contractions/distribute_products.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/ops.h"
#include "passes/gradients.h"
#include "support/same_results.h"

namespace ebb::distribute_products_test {
namespace {

struct Layer {
  std::string name;
  int64_t out = 24, in = 32, rank = 4;
  Source::Kind weight = Source::Kind::state;
  bool scaled = false;  // each row, by a param
};

Value source(Graph& g, Source::Kind kind, const std::string& name, const Shape& shape) {
  return g.source(kind, name, {DType::f32, shape});
}

// w + (2 up) down, in the shape that a file has of a filter of 1x1, and back.
Value changed(Graph& g, const Layer& l) {
  const Value w = source(g, l.weight, l.name, {l.out, l.in});
  const Value up = source(g, Source::Kind::param, l.name + ".up", {l.out, l.rank, 1, 1});
  const Value down = source(g, Source::Kind::param, l.name + ".down", {l.rank, l.in, 1, 1});
  const Value change =
      ops::matmul(ops::reshape(2.0 * up, {l.out, l.rank}), ops::reshape(down, {l.rank, l.in}));
  const Value sum = w + ops::reshape(ops::reshape(change, {l.out, l.in, 1, 1}), {l.out, l.in});
  if (!l.scaled) return sum;
  const Value scale = source(g, Source::Kind::param, l.name + ".scale", {l.out});
  return sum * ops::reshape(scale, {l.out, 1});
}

// The mean square of what layers below each other make of x.
Graph loss_of(const std::vector<Layer>& layers) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 5, layers[0].in}});
  std::vector<Value> weights;
  int64_t rows = 0;
  for (const Layer& l : layers) weights.push_back(changed(g, l)), rows += l.out;
  const Value bias = source(g, Source::Kind::state, "bias", {rows});
  const Value y = ops::linear(x, weights.size() == 1 ? weights[0] : ops::concat(weights, 0), bias);
  g.output("y", y);
  g.output("loss", ops::reshape(ops::mean(y * y, {0, 1, 2}), {}));
  return g;
}

std::vector<std::string> params_of(const Graph& g) {
  std::vector<std::string> out;
  for (const Source& s : g.sources())
    if (s.kind == Source::Kind::param) out.push_back(s.name);
  return out;
}

// Shapes of what matmuls give.
std::multiset<std::string> products(const Graph& g) {
  std::multiset<std::string> out;
  for (const Node& n : g.nodes())
    if (n.op->contraction) out.insert(str(g.type(n.out[0]).shape));
  return out;
}

// Values and gradients are those of the graph as it was.
void expect_same(const Graph& before, const Graph& after) {
  test::expect_equal(before, after);
  const auto params = params_of(before);
  test::expect_equal(gradients(before, "loss", params), gradients(after, "loss", params));
}

}  // namespace

TEST(distribute_products, a_change_of_low_rank__is_beside_its_weight) {
  const Graph before = loss_of({{.name = "w"}}), after = distribute_products(before);
  expect_same(before, after);
  EXPECT_EQ(products(after), (std::multiset<std::string>{"[2,5,24]", "[2,5,24]", "[2,5,4]"}));
}

TEST(distribute_products, the_step__has_no_gradient_of_the_weight) {
  const auto matrices = [](const Graph& g) {
    const Graph step = gradients(g, "loss", params_of(g));
    return products(step).count("[24,32]");
  };
  const Graph before = loss_of({{.name = "w"}});
  EXPECT_EQ(matrices(before), 2u);  // the change and its gradient
  EXPECT_EQ(matrices(distribute_products(before)), 0u);
}

TEST(distribute_products, changes_below_each_other__are_one_product_each_way) {
  const Graph before =
      loss_of({{.name = "q"}, {.name = "key", .out = 8, .rank = 2}, {.name = "values"}});
  const Graph after = distribute_products(before);
  expect_same(before, after);
  EXPECT_EQ(products(after), (std::multiset<std::string>{"[2,5,56]", "[2,5,56]", "[2,5,10]"}));
}

TEST(distribute_products, rows_times_a_scale__are_columns_of_the_products_times_it) {
  const Graph before = loss_of({{.name = "w", .scaled = true}}),
              after = distribute_products(before);
  expect_same(before, after);
  EXPECT_EQ(products(after), (std::multiset<std::string>{"[2,5,24]", "[2,5,24]", "[2,5,4]"}));
  const Graph step = gradients(after, "loss", params_of(after));
  EXPECT_EQ(products(step).count("[24,32]"), 0u);
  const Graph some = loss_of({{.name = "q", .scaled = true}, {.name = "key", .out = 8, .rank = 2}});
  expect_same(some, distribute_products(some));
  EXPECT_EQ(products(distribute_products(some)),
            (std::multiset<std::string>{"[2,5,32]", "[2,5,32]", "[2,5,6]"}));
}

TEST(distribute_products, where_nothing_is_saved__nothing_changes) {
  const std::vector<std::vector<Layer>> cases = {
      {{.name = "w", .rank = 14}},  // 14 (24 + 32) > 24 * 32
      {{.name = "w", .weight = Source::Kind::param}},
      {{.name = "q"}, {.name = "key", .rank = 30}}};
  for (const auto& layers : cases) {
    const Graph before = loss_of(layers);
    EXPECT_EQ(products(distribute_products(before)), products(before));
  }
}

}  // namespace ebb::distribute_products_test
