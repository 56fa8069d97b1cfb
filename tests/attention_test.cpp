// Attention in plans: dtypes that the derived tests do not mix, notes on slow kernels, and layers.
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "guarded.h"
#include "nn/layers.h"
#include "passes/precision/mixed_precision.h"
#include "reference.h"
#include "runtime/plan.h"
#include "support/one_op.h"
#include "tolerance.h"

namespace ebb::test::attention_test {
namespace {

class AttentionOn : public OnEachBackend {
 protected:
  std::string text_of_plan(Type q, std::vector<std::string>* log = nullptr) {
    Graph g;
    const Value x = g.input("q", q);
    g.output("o", ops::attention(x, x, x));
    Context c = context_;
    if (log) c.log = [log](std::string_view line) { log->emplace_back(line); };
    return Plan(g, c).text();
  }
};

// lse is f32 whatever q is: rounding the bias to 16 bits would move it a thousand times as far as
// the tolerance.
TEST_P(AttentionOn, f32_bias_of_16_bit_heads__is_not_rounded) {
  const Type q{DType::bf16, {2, 20, 2, 64}}, k{DType::bf16, {2, 37, 2, 64}};
  const Type bias{DType::f32, {1, 2, 20, 37}}, lengths{DType::i64, {2}};
  Graph g;
  const std::vector<Value> in{g.input("q", q), g.input("k", k), g.input("v", k),
                              g.input("bias", bias), g.input("lengths", lengths)};
  const auto out = g.add(ops::def::attention(),
                         ops::Attention{.causal = true, .bias = true, .key_lengths = true}, in);
  g.output("lse", out[1]);
  RefInputs inputs{{"lengths", ref_array({2}, {37, 11})}};
  NamedTensors tensors;
  for (const Value& v : in) {
    const std::string name = g.sources()[static_cast<size_t>(&v - in.data())].name;
    if (name != "lengths") {
      RefArray x{v.shape(), std::vector<double>(static_cast<size_t>(v.shape().numel()))};
      for (size_t i = 0; i < x.v.size(); ++i)
        x.v[i] =
            rounded((name == "bias" ? 9 : 1) * std::sin(0.7 * static_cast<double>(i)), v.dtype());
      inputs[name] = std::move(x);
    }
    Tensor t(v.type());
    const Bytes bytes = stored(inputs[name], v.dtype());
    std::copy(bytes.begin(), bytes.end(), static_cast<unsigned char*>(t.raw()));
    tensors[name] = t;
  }
  const RefArray want = output_of(g, evaluate_reference(g, inputs), "lse");
  const RefArray have = ref_array(Plan(g, context_).run(tensors).at("lse"));
  for (size_t i = 0; i < want.v.size(); ++i)
    EXPECT_NEAR(have.v[i], want.v[i], tolerance(DType::f32, want.v[i], 64, 64)) << i;
}

// No tensor core takes a head 5 wide.
TEST_P(AttentionOn, plain_kernel__is_noted_in_the_plan_and_its_log) {
  const char* note = "note: plain kernel, no tensor cores";
  const bool cpu = context_.device->backend() == "cpu";
  std::vector<std::string> log;
  const std::string plain = text_of_plan({DType::bf16, {1, 8, 2, 5}}, &log);
  EXPECT_EQ(plain.find(note) != std::string::npos, !cpu) << plain;
  ASSERT_EQ(log.size(), cpu ? 0u : 1u);
  if (!cpu) {
    EXPECT_NE(log[0].find("attention_plain: plain kernel"), std::string::npos) << log[0];
  }
  EXPECT_EQ(text_of_plan({DType::f32, {1, 8, 2, 5}}).find("note:"), std::string::npos);
  EXPECT_EQ(text_of_plan({DType::bf16, {1, 8, 2, 64}}).find("note:"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(backends, AttentionOn, testing::ValuesIn(backends()),
                         [](const auto& info) { return info.param; });

// The processor has no units for f16.
TEST(plan_notes, kernels_that_convert__say_so_once) {
  Context c = open_context("cpu");
  std::vector<std::string> log;
  c.log = [&](std::string_view line) { log.emplace_back(line); };
  Graph g;
  const Value x = g.input("x", {DType::f16, {4, 8}});
  g.output("y", ops::matmul(ops::matmul(x, g.input("a", {DType::f16, {8, 8}})),
                            g.input("b", {DType::f16, {8, 16}})));
  const std::string text = Plan(g, c).text();
  EXPECT_NE(text.find("  note: computed in f32"), std::string::npos) << text;
  ASSERT_EQ(log.size(), 1u);
  EXPECT_NE(log[0].find("matmul_widened: computed in f32, with conversions before and after "
                        "(2 steps)  matmul f16[4,8],f16[8,8]"),
            std::string::npos)
      << log[0];
}

TEST(attention_precision, bias__keeps_its_dtype) {
  Graph g;
  const Value q = g.input("q", {DType::f32, {1, 4, 2, 8}});
  const Value bias = g.input("bias", {DType::f32, {1, 2, 4, 4}});
  g.output("o", ops::attention(q, q, q, {.bias = bias}));
  const Graph low = mixed_precision(g, DType::bf16);
  int64_t attentions = 0;
  for (const Node& n : low.nodes()) {
    if (n.op != &ops::def::attention()) continue;
    ++attentions;
    EXPECT_EQ(low.type(n.in[0]).dtype, DType::bf16);
    EXPECT_EQ(low.type(n.in[3]).dtype, DType::f32);
  }
  EXPECT_EQ(attentions, 1);
}

// Two heads of width 1: o of head h is the mean of v weighted by exp(q k).
TEST(cross_attention, positions__attend_to_the_context) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {1, 1, 2, 3}});
  const Value context = g.input("context", {DType::f32, {1, 3, 2}});
  const Value lengths = g.input("lengths", {DType::i64, {1}});
  const Value y = nn::cross_attention(nn::Params(g) / "attn2", x, context,
                                      {.heads = 2, .width = 2, .key_lengths = lengths});
  ASSERT_EQ(y.shape(), (Shape{1, 1, 2, 2}));
  g.output("y", y);
  const auto values =
      evaluate_reference(g, {{"x", ref_array({1, 1, 2, 3}, {1, 2, 3, -1, 0, 1})},
                             {"context", ref_array({1, 3, 2}, {0.5, 1, -1, 0.25, 100, 100})},
                             {"lengths", ref_array({1}, {2})},
                             {"attn2.to_q.weight", ref_array({2, 3}, {1, 0, 0, 0, 1, 0})},
                             {"attn2.to_k.weight", ref_array({2, 2}, {1, 0, 0, 1})},
                             {"attn2.to_v.weight", ref_array({2, 2}, {2, 0, 0, 4})}});
  const double queries[2][2] = {{1, 2}, {-1, 0}}, states[2][2] = {{0.5, 1}, {-1, 0.25}};
  const RefArray& have = output_of(g, values, "y");
  for (size_t t = 0; t < 2; ++t)
    for (size_t h = 0; h < 2; ++h) {
      const double a = std::exp(queries[t][h] * states[0][h]);
      const double b = std::exp(queries[t][h] * states[1][h]);
      const double v = h == 0 ? 2 : 4;
      EXPECT_NEAR(have.v[t * 2 + h], v * (a * states[0][h] + b * states[1][h]) / (a + b), 1e-12);
    }
}

}  // namespace
}  // namespace ebb::test::attention_test
