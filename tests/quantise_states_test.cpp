// Weights that stay in 8 bits: their numbers, what reads them, and how long they live restored.
#include "passes/precision/quantise_states.h"

#include <gtest/gtest.h>

#include <limits>

#include "nn/ops.h"
#include "passes/fusion/fuse_horizontally.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/schedule/near_readers.h"
#include "runtime/plan.h"
#include "support/files.h"
#include "support/hashed_weights.h"
#include "train/state.h"

namespace ebb::quantise_states_test {
namespace {

using testing::hashed, testing::error_of;

constexpr int64_t width = 64, layers = 24;

std::string weight(int64_t k) { return str("layer.", k, ".weight"); }

// Layers one after the other, with a LoRA beside the first, and their mean square.
Graph loss() {
  Graph g;
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  Value x = g.input("x", f32({4, width}));
  const Value down = g.source(Source::Kind::param, "down", f32({2, width}));
  const Value up = g.source(Source::Kind::param, "up", f32({width, 2}));
  Value side = ops::linear(ops::linear(x, down), up);
  for (int64_t k = 0; k < layers; ++k) {
    const AtScope at(g, str("layer.", k));
    const Value w = g.source(Source::Kind::state, weight(k), f32({width, width}));
    const Value bias = g.source(Source::Kind::state, str("layer.", k, ".bias"), f32({width}));
    x = ops::silu(ops::linear(x, w, bias));
    if (k == 0) x = x + side;
  }
  g.output("loss", ops::reshape(ops::mean(x * x, {0, 1}), {}));
  return g;
}

std::set<std::string> all_weights() {
  std::set<std::string> out;
  for (int64_t k = 0; k < layers; ++k) out.insert(weight(k));
  return out;
}

Plan bound(const Graph& g, const std::function<Tensor(const std::string&, const Tensor&)>& as) {
  Plan plan(gradients(g, "loss", std::vector<std::string>{"down", "up"}),
            open_context("cpu", {.threads = 1}));
  const Graph plain = loss();
  for (const Source& s : plain.sources()) {
    if (s.kind == Source::Kind::input) continue;
    const Tensor t = hashed(s.name, plain.type(s.value).shape, 0.3);
    train::bind_weight(plan, s.name, as(s.name, t));
  }
  return plan;
}

NamedTensors run(Plan& plan) { return plan.run({{"x", hashed("x", {4, width}, 1)}}); }

size_t restorations(const Graph& g) {
  size_t out = 0;
  for (const Node& n : g.nodes())
    for (const int32_t v : n.in) out += g.type(v).dtype == DType::u8;
  return out;
}

}  // namespace

// The bytes of a block of GGUF's q8_0 and numbers that other programs make of them.
TEST(quantise_states, numbers__are_those_of_q8_0) {
  constexpr std::string_view bytes =
      "01fa2e50d41f4a7d26074a51285616a25b8523dffe87599c1ad2c862a562639e";
  Quantised q{Tensor(DType::u8, {1, 1, 32}), Tensor(DType::f16, {1, 1, 1})};
  q.scales.span<f16>()[0].bits = 0x224c;
  for (size_t i = 0; i < 32; ++i) {
    const auto byte = std::stoi(std::string(bytes.substr(2 * i, 2)), nullptr, 16);
    q.codes.span<uint8_t>()[i] = static_cast<uint8_t>((byte + 128) % 256);
  }
  const Tensor t = q.restored({1, 32});
  const auto x = t.span<float>();
  EXPECT_EQ(x[0], 0.012298584F);
  EXPECT_EQ(x[1], -0.0737915039F);
  EXPECT_EQ(x[15], -1.15606689F);
  EXPECT_EQ(x[31], -1.20526123F);
  double sum = 0;
  for (const float v : x) sum += double{v};
  EXPECT_EQ(sum, 5.251495361328125);
}

TEST(quantise_states, a_number__is_within_half_a_step) {
  const Tensor w = hashed("w", {8, 3, 64}, 0.02);
  for (float& v : w.span<float>().subspan(64, 32)) v = 0;
  const Quantised q = Quantised::of("w", w);
  const Tensor back = q.restored(w.shape());
  double worst = 0;
  for (size_t i = 0; i < w.span<float>().size(); ++i) {
    const double step = static_cast<float>(q.scales.span<f16>()[i / 32]);
    const double off = std::abs(double{w.span<float>()[i]} - double{back.span<float>()[i]});
    EXPECT_LE(off, 0.51 * step) << i;
    worst = std::max(worst, step > 0 ? off / step : 0);
  }
  EXPECT_GT(worst, 0.4);
}

TEST(quantise_states, numbers_without_a_scale__are_refused) {
  const Tensor w(DType::f32, {1, 32});
  w.span<float>()[3] = 1e7F;
  const std::string error = error_of([&] { Quantised::of("w", w); });
  EXPECT_NE(error.find("'w' has numbers up to 1e+07"), std::string::npos) << error;
  w.span<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  const std::string nan = error_of([&] { Quantised::of("w", w); });
  EXPECT_NE(nan.find("'w' has a number that is not finite (nan)"), std::string::npos) << nan;
  EXPECT_FALSE(Quantised::takes({8, 36}));
  EXPECT_FALSE(Quantised::takes({64}));
  EXPECT_TRUE(Quantised::takes({8, 3, 3, 32}));
  const std::string unknown = error_of([&] { quantise_states(loss(), {"down"}); });
  EXPECT_NE(unknown.find("no weight of this name stays as it is  down"), std::string::npos);
}

TEST(quantise_states, loss_and_gradients__are_those_of_the_restored_weights) {
  const std::set<std::string> names = all_weights();
  Plan quantised =
      bound(quantise_states(loss(), names), [](const auto&, const Tensor& t) { return t; });
  Plan whole = bound(loss(), [&](const std::string& name, const Tensor& t) {
    return names.contains(name) ? Quantised::of(name, t).restored(t.shape()) : t;
  });
  Plan before = bound(loss(), [](const auto&, const Tensor& t) { return t; });
  const NamedTensors a = run(quantised), b = run(whole), c = run(before);
  for (const auto& [name, t] : b) {
    const auto x = a.at(name).span<float>(), y = t.span<float>();
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(x[i], y[i], 1e-5F * std::abs(y[i]) + 1e-9F) << name << ' ' << i;
  }
  const float loss = c.at("loss").span<float>()[0];
  EXPECT_NEAR(a.at("loss").span<float>()[0], loss, 0.02F * loss);
}

// Else all of them would lie restored in memory between the forward and the backward pass.
TEST(quantise_states, weights__are_restored_where_they_are_read) {
  Plan plan =
      bound(quantise_states(loss(), all_weights()), [](const auto&, const Tensor& t) { return t; });
  EXPECT_GE(restorations(plan.graph()), static_cast<size_t>(layers));
  EXPECT_LT(plan.arena_bytes(), layers * width * width * 4 / 2);
}

TEST(near_readers, what_is_read_far_apart__is_made_again) {
  Graph g;
  const Value codes = g.source(Source::Kind::state, "w.q8", {DType::u8, {8, 1, 32}});
  const Value scales = g.source(Source::Kind::state, "w.q8_scale", {DType::f16, {8, 1, 1}});
  const Value w =
      ops::reshape(ops::map(
                       {codes, scales}, [](auto x) { return (x[0] - 128.0) * x[1]; }, DType::f32),
                   {8, 32});
  const Value x = g.input("x", {DType::f32, {8, 32}});
  Value y = x * w + w;
  for (int k = 0; k < 40; ++k) y = ops::silu(y);
  g.output("y", y * w);
  const NearReaders out = near_readers(g);
  EXPECT_EQ(restorations(out.graph), 2u);
  ASSERT_EQ(out.origin.size(), out.graph.nodes().size());
  for (size_t i = 0; i < out.origin.size(); ++i)
    EXPECT_EQ(out.graph.nodes()[i].op, g.nodes()[out.origin[i]].op) << i;
  EXPECT_EQ(restorations(near_readers(Graph(out.graph)).graph), 2u);
  Graph plain;
  plain.output("y", ops::silu(plain.input("x", {DType::f32, {3}})));
  EXPECT_EQ(near_readers(plain).graph.nodes().size(), 1u);
}

// One node for the casts of many weights would restore all of them for each reader.
TEST(fuse_horizontally, restored_weights__stay_alone) {
  const auto joined = [](DType codes) {
    Graph g;
    for (const char* name : {"a", "b"}) {
      const Value w = g.source(Source::Kind::state, name, {codes, {8, 32}});
      g.output(name, ops::map(
                         {w}, [](auto x) { return x[0] - 128.0; }, DType::f32));
    }
    return fuse_horizontally(lower(g, [](const Signature& s) { return s.op->reference; }),
                             [](const Signature&) { return true; })
        .nodes()
        .size();
  };
  EXPECT_EQ(joined(DType::u8), 2u);
  EXPECT_EQ(joined(DType::bf16), 1u);
}

TEST(quantise_states, weights_of_products__are_what_products_alone_read) {
  Graph g;
  const auto source = [&](const char* name, Shape s) {
    return g.source(Source::Kind::state, name, {DType::f32, std::move(s)});
  };
  const Value x = g.input("x", {DType::f32, {4, 32}});
  const Value q = source("q", {8, 32}), k = source("k", {8, 32}), added = source("added", {4, 16});
  const Value both = source("both", {32, 16});
  const Value y = ops::linear(x, ops::concat({q, k}, 0), source("bias", {16})) + added;
  g.output("y", ops::linear(y, both));
  g.output("z", both);
  EXPECT_EQ(weights_of_products(g), (std::set<std::string>{"q", "k"}));
}

}  // namespace ebb::quantise_states_test
