// Attention's masks and biases against softmax written out.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/prim/attention/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "passes/gradients.h"
#include "passes/simplify.h"
#include "reference.h"
#include "support/files.h"
#include "support/one_op.h"

namespace ebb {
namespace {

using test::run_all;
using testing::error_of;

constexpr double inf = std::numeric_limits<double>::infinity();

// One head of width 1 whose scores are `scores` (a row a query), with values 1, 10, 100, ...
struct Head {
  std::vector<std::vector<double>> scores;

  // o of every query: k are 1, so that scores are the bias only.
  std::vector<double> attended() const {
    std::vector<double> out;
    for (const auto& row : scores) {
      double sum = 0, o = 0, v = 1;
      for (const double s : row) {
        sum += std::exp(s);
        o += std::exp(s) * v;
        v *= 10;
      }
      out.push_back(sum == 0 ? 0 : o / sum);
    }
    return out;
  }
};

// q and k of one head of width 1 with q k = 0, so that a bias is all there is.
std::vector<test::Input> zeros_and_tens(int64_t t, int64_t s) {
  std::vector<double> v;
  for (double x = 1; static_cast<int64_t>(v.size()) < s; x *= 10) v.push_back(x);
  const auto n = [](int64_t count) { return std::vector<double>(static_cast<size_t>(count)); };
  return {{{1, t, 1, 1}, n(t)}, {{1, s, 1, 1}, n(s)}, {{1, s, 1, 1}, v}};
}

std::vector<double> attended(const std::vector<test::Input>& in, ops::AttentionOptions options) {
  return run_all(in,
                 [&](auto x) {
                   if (in.size() > 3 && in[3].dtype == DType::i64) options.key_lengths = x[3];
                   if (in.size() > 3 && in[3].dtype != DType::i64) options.bias = x[3];
                   if (in.size() > 4) options.key_lengths = x[4];
                   return std::vector<Value>{ops::attention(x[0], x[1], x[2], options)};
                 })[0]
      .v;
}

void expect_equal(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-12) << i;
}

TEST(attention, causal__averages_what_came_before) {
  expect_equal(attended(zeros_and_tens(3, 3), {.causal = true}), {1, 5.5, 37});
}

// The last query attends to all keys, whatever their number; each earlier one to one fewer.
TEST(attention, causal_with_more_keys__ends_at_the_last) {
  expect_equal(attended(zeros_and_tens(2, 3), {.causal = true}), {5.5, 37});
}

TEST(attention, causal_with_more_queries__leaves_the_first_blind) {
  expect_equal(attended(zeros_and_tens(4, 2), {.causal = true}), {0, 0, 1, 5.5});
}

TEST(attention, key_lengths__cut_the_keys_of_each_sample) {
  std::vector<test::Input> in = zeros_and_tens(1, 3);
  for (test::Input& x : in) {  // four samples
    x.shape = {4, x.shape[1], 1, 1};
    const auto one = x.v;
    for (int i = 0; i < 3; ++i) x.v.insert(x.v.end(), one.begin(), one.end());
  }
  in.push_back({{4}, {0, 1, 2, 7}, DType::i64});
  expect_equal(attended(in, {}), {0, 1, 5.5, 37});
}

TEST(attention, bias__is_added_and_minus_infinity_hides) {
  const std::vector<std::vector<double>> scores{{0.5, -1, 2}, {-inf, 0, 1}, {-inf, -inf, -inf}};
  auto in = zeros_and_tens(3, 3);
  test::Input bias{{1, 1, 3, 3}, {}};
  for (const auto& row : scores) bias.v.insert(bias.v.end(), row.begin(), row.end());
  in.push_back(bias);
  expect_equal(attended(in, {}), Head{scores}.attended());
}

TEST(attention, lowest_finite_bias_everywhere__is_no_mask) {
  auto in = zeros_and_tens(1, 3);
  in.push_back({{1, 1, 1, 3}, std::vector<double>(3, std::numeric_limits<float>::lowest())});
  expect_equal(attended(in, {}), {37});
}

TEST(attention, types__name_what_is_wrong) {
  const auto of = [](Type bias, Type lengths) {
    return error_of([&] {
      Graph g;
      const Value q = g.input("q", {DType::f32, {2, 3, 4, 8}});
      const Value k = g.input("k", {DType::f32, {2, 5, 4, 8}});
      ops::AttentionOptions o;
      if (bias.shape.rank() > 0) o.bias = g.input("bias", bias);
      if (lengths.shape.rank() > 0) o.key_lengths = g.input("lengths", lengths);
      ops::attention(q, k, k, o);
    });
  };
  const Type none{DType::f32, {}};
  EXPECT_EQ(of({DType::f32, {1, 4, 3, 5}}, {DType::i64, {2}}), "");
  for (const Shape& s : {Shape{1, 4, 3, 1}, Shape{3, 4, 3, 5}, Shape{4, 3, 5}, Shape{1, 2, 3, 5}})
    EXPECT_NE(of({DType::f32, s}, none).find("bias must be floats [2,4,3,5]"), std::string::npos);
  EXPECT_NE(of({DType::i64, {1, 4, 3, 5}}, none).find("bias must be"), std::string::npos);
  EXPECT_NE(of(none, {DType::i64, {3}}).find("key_lengths must be i64[2]"), std::string::npos);
  EXPECT_NE(of(none, {DType::f32, {2}}).find("key_lengths must be i64[2]"), std::string::npos);
}

// Width 1, and keys of 0: the output is the mean of a head's values.
TEST(attention, grouped_heads__read_the_head_of_their_group) {
  const test::Input q{{1, 1, 6, 1}, std::vector<double>(6, 0.5)};
  const test::Input k{{1, 2, 2, 1}, std::vector<double>(4, 0.0)};
  const test::Input v{{1, 2, 2, 1}, {1, 10, 3, 30}};  // by key, then by head
  expect_equal(attended({q, k, v}, {}), {2, 2, 2, 20, 20, 20});
}

TEST(attention, grouped_heads__must_divide_those_of_q) {
  const auto of = [](int64_t heads, int64_t key_heads) {
    return error_of([&] {
      Graph g;
      const Value k = g.input("k", {DType::f32, {2, 5, key_heads, 8}});
      ops::attention(g.input("q", {DType::f32, {2, 3, heads, 8}}), k, k);
    });
  };
  EXPECT_EQ(of(6, 2), "");
  for (const auto& [heads, key_heads] : {std::pair(6, 4), std::pair(2, 4), std::pair(3, 0)})
    EXPECT_NE(
        of(heads, key_heads).find(str("must divide those of q (", key_heads, " and ", heads, ")")),
        std::string::npos);
}

// The gradient of a bias takes the T x S matrix: it is computed only if it is used.
TEST(attention, bias_without_gradient__costs_nothing) {
  Graph g;
  const Value q = g.source(Source::Kind::param, "q", {DType::f32, {1, 6, 2, 8}});
  const Value bias = g.source(Source::Kind::param, "bias", {DType::f32, {1, 2, 6, 6}});
  g.output("loss",
           ops::reshape(ops::sum(ops::attention(q, q, q, {.bias = bias}), {0, 1, 2, 3}), {}));
  const auto matmuls = [&](const std::vector<std::string>& wrt) {
    int count = 0;
    const Graph backward = dead_code(gradients(g, "loss", wrt));
    for (const Node& n : backward.nodes()) count += n.op->name == "matmul";
    return count;
  };
  EXPECT_EQ(matmuls({"q"}), 0);
  EXPECT_EQ(matmuls({"q", "bias"}), 2);
}

}  // namespace
}  // namespace ebb
