#include "nn/weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "nn/layers.h"
#include "support/files.h"

using namespace ebb;

namespace {

Tensor ramp(const Shape& shape) {
  Tensor t(DType::f32, shape);
  float i = 0;
  for (float& v : t.span<float>()) v = i++;
  return t;
}

using ebb::testing::error_of;

}  // namespace

TEST(weights, convolution__is_transposed_to_channels_last_and_back) {
  const nn::Weight w{"c.weight", {2, 3, 5, 4}, {.channels_last = true}};
  EXPECT_EQ(nn::file_shape(w), (Shape{2, 4, 3, 5}));
  const Tensor file = ramp({2, 4, 3, 5});
  const Tensor ours = nn::from_file(w, file);
  EXPECT_EQ(ours.shape(), w.shape);
  for (int64_t o = 0; o < 2; ++o)
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t k = 0; k < 15; ++k)
        EXPECT_EQ(ours.span<float>()[static_cast<size_t>((o * 15 + k) * 4 + i)],
                  file.span<float>()[static_cast<size_t>((o * 4 + i) * 15 + k)]);
  const Tensor back = nn::to_file(w, ours);
  EXPECT_EQ(back.shape(), file.shape());
  EXPECT_TRUE(std::ranges::equal(back.span<float>(), file.span<float>()));
}

TEST(weights, rows_of_q_k_and_v__come_into_order_and_go_back) {
  constexpr int64_t qkv_interleave = 2, rows = 3, in = 5;
  const nn::Weight w{
      "qkv.weight",
      {3 * qkv_interleave * rows, in},
      {.file_shape = {3 * qkv_interleave * rows, in, 1}, .qkv_interleave = qkv_interleave}};
  const Tensor file = ramp({3 * qkv_interleave * rows, in, 1});
  const Tensor ours = nn::from_file(w, file);
  EXPECT_EQ(ours.shape(), w.shape);
  for (int64_t t = 0; t < qkv_interleave; ++t)
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t i = 0; i < rows * in; ++i)
        EXPECT_EQ(
            ours.span<float>()[static_cast<size_t>((part * qkv_interleave + t) * rows * in + i)],
            file.span<float>()[static_cast<size_t>((t * 3 + part) * rows * in + i)]);
  const Tensor back = nn::to_file(w, ours);
  EXPECT_EQ(back.shape(), file.shape());
  EXPECT_TRUE(std::ranges::equal(back.span<float>(), file.span<float>()));
}

TEST(weights, rows_of_q_k_and_v__that_do_not_divide_are_an_error) {
  const nn::Weight w{"qkv.bias", {12}, {.qkv_interleave = 8}};
  EXPECT_EQ(error_of([&] { nn::from_file(w, ramp({12})); }),
            "qkv.bias: rows must divide into q, k and v of each turn (8)  [12]");
}

TEST(weights, rows_of_q_k_and_v__of_filters_are_an_error) {
  const nn::Weight w{"qkv.weight", {12, 1, 1, 5}, {.channels_last = true, .qkv_interleave = 2}};
  const std::string error = "qkv.weight: filters have no turns of q, k and v (2)  [12,1,1,5]";
  EXPECT_EQ(error_of([&] { nn::from_file(w, ramp({12, 5, 1, 1})); }), error);
  EXPECT_EQ(error_of([&] { nn::to_file(w, ramp({12, 1, 1, 5})); }), error);
  EXPECT_EQ(error_of([&] { nn::initial_tensor(w, 1); }), error);
}

// A seed means the same network, however the graph wants its rows.
TEST(weights, rows_of_q_k_and_v__start_as_files_have_them) {
  const nn::Weight as_file{"qkv.weight", {36, 7}, {.init = "uniform", .scale = 0.25}};
  nn::Weight w = as_file;
  w.info.qkv_interleave = 4;
  const Tensor start = nn::to_file(w, nn::initial_tensor(w, 7));
  EXPECT_TRUE(
      std::ranges::equal(start.span<float>(), nn::initial_tensor(as_file, 7).span<float>()));
}

TEST(self_attention, order_of_files__is_the_parameters_and_no_work_of_the_graph) {
  const std::pair<nn::QkvOrder, int64_t> cases[] = {{nn::QkvOrder::qkv_head_channel, 1},
                                                    {nn::QkvOrder::head_qkv_channel, 2},
                                                    {nn::QkvOrder::head_channel_qkv, 8}};
  for (const auto& [order, qkv_interleave] : cases) {
    Graph g;
    const Value x = g.input("x", {DType::f32, {1, 4, 8}});
    nn::self_attention(nn::Params(g) / "qkv", x, {.heads = 2, .order = order});
    EXPECT_EQ(g.find_source("qkv.weight")->info.qkv_interleave, qkv_interleave);
    EXPECT_EQ(g.find_source("qkv.bias")->info.qkv_interleave, qkv_interleave);
    for (const Node& n : g.nodes()) EXPECT_NE(n.op->name, "permute");
  }
}

TEST(weights, linear_stored_as_convolution__takes_any_number_of_ones) {
  const nn::Weight w{"l.weight", {3, 2}, {.file_shape = {3, 2, 1, 1}}};
  for (const Shape& s : {Shape{3, 2}, Shape{3, 2, 1}, Shape{3, 2, 1, 1}})
    EXPECT_EQ(nn::from_file(w, ramp(s)).shape(), (Shape{3, 2}));
  EXPECT_EQ(nn::to_file(w, ramp({3, 2})).shape(), (Shape{3, 2, 1, 1}));
  EXPECT_THROW(nn::from_file(w, ramp({2, 3})), Error);
}

TEST(weights, initial_values__follow_their_rule_and_their_name_only) {
  const nn::Weight normal{"a", {64, 64}, {.init = "normal", .scale = 0.5}};
  const nn::Weight uniform{"b", {64, 64}, {.init = "uniform", .scale = 0.25}};
  const auto moments = [](const Tensor& t) {
    double sum = 0, squares = 0, top = 0;
    for (const float v : t.span<float>()) {
      sum += double{v};
      squares += double{v} * double{v};
      top = std::max(top, std::abs(double{v}));
    }
    const auto n = static_cast<double>(t.numel());
    return std::array{sum / n, std::sqrt(squares / n), top};
  };
  // 4096 draws: the mean is within 4 deviations / 64, the deviation within 5 %.
  const auto n = moments(nn::initial_tensor(normal, 7));
  EXPECT_NEAR(n[0], 0, 4 * 0.5 / 64);
  EXPECT_NEAR(n[1], 0.5, 0.025);
  const auto u = moments(nn::initial_tensor(uniform, 7));
  EXPECT_NEAR(u[1], 0.25 / std::sqrt(3.0), 0.0075);
  EXPECT_LE(u[2], 0.25);
  EXPECT_GT(u[2], 0.24);
  const auto first = nn::initial_tensors({normal, uniform}, 7);
  const auto again = nn::initial_tensors({uniform, normal}, 7);
  for (const char* name : {"a", "b"})
    EXPECT_TRUE(std::ranges::equal(first.at(name).span<float>(), again.at(name).span<float>()));
  nn::Weight other = normal;
  other.name = "c";
  EXPECT_NE(nn::initial_tensor(other, 7).span<float>()[0], first.at("a").span<float>()[0]);
  EXPECT_NE(nn::initial_tensor(normal, 8).span<float>()[0], first.at("a").span<float>()[0]);
}

// What a seed means stays what it was, however the work is divided.
TEST(weights, initial_values__are_one_function_of_seed_name_and_index) {
  const int64_t size = 100001;  // several threads' parts, the last one not full
  const RandomKey key{.seed = 7, .image = fnv1a("a"), .use = random_use("init")};
  const auto value = [&](size_t i, bool normal) {
    const Philox w = random_block(key, i / 4);
    if (normal) return 0.02 * normals_from(w[i % 4 / 2 * 2], w[i % 4 / 2 * 2 + 1])[i % 2];
    return 0.3 * (2.0 * uniform_from(w[i % 4]) - 1.0);
  };
  for (const bool normal : {false, true}) {
    const nn::Weight w{"a", {size}, {normal ? "normal" : "uniform", normal ? 0.02 : 0.3}};
    const Tensor t = nn::initial_tensor(w, 7);
    const auto drawn = t.span<float>();
    for (size_t i = 0; i < drawn.size(); ++i)
      ASSERT_EQ(drawn[i], static_cast<float>(value(i, normal))) << w.info.init << " " << i;
  }
}

TEST(weights, unknown_initial_value__is_an_error) {
  EXPECT_EQ(error_of([] {
              nn::initial_tensor({"w", {2}, {.init = "magic"}}, 0);
            }),
            "w: unknown initial value 'magic'");
}

TEST(weights, loading__lists_missing_unused_and_misshapen_tensors_at_once) {
  const std::vector<nn::Weight> weights = {{"a", {2}, {}}, {"b", {3}, {}}, {"c", {4}, {}}};
  const nn::FileTensors file{.shapes = {{"m.a", {2}}, {"m.b", {5}}, {"m.x", {1}}, {"other", {1}}},
                             .load = [](const std::string&) { return ramp({2}); },
                             .prefix = "m."};
  const std::string text = error_of([&] { nn::load_weights(weights, file); });
  for (const char* part : {"missing (1):\n    m.c[4]", "unused (2):", "m.x[1]", "other[1]",
                           "misshapen (1):\n    m.b: expected [3], file has [5]"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nin: " << text;
}

TEST(weights, loading_a_wholly_other_file__lists_ten_of_a_kind) {
  nn::FileShapes shapes;
  for (int i = 0; i < 25; ++i) shapes["t" + std::to_string(i)] = {1};
  const std::string text = error_of([&] { nn::load_weights({}, {.shapes = shapes, .load = {}}); });
  EXPECT_NE(text.find("unused (25)"), std::string::npos) << text;
  EXPECT_NE(text.find("and 15 more"), std::string::npos) << text;
}

TEST(weights, loading__takes_16_bit_files_and_computes_positions_that_are_missing) {
  const std::vector<nn::Weight> weights = {{"a", {2}, {}},
                                           {"pos_embed", {1, 4, 8}, {.init = "sin_cos_2d"}, false}};
  const nn::FileTensors file{.shapes = {{"a", {2}}, {"x.resample_filter", {1}}},
                             .load = [](const std::string&) { return ramp({2}).to(DType::bf16); },
                             .ignored = [](auto n) { return n.ends_with("resample_filter"); }};
  const nn::Tensors t = nn::load_weights(weights, file);
  EXPECT_EQ(t.at("a").span<float>()[1], 1.0f);
  // Token 1 is row 0, column 1: sin(1), sin(1/100), cos(1), cos(1/100), then sin 0 and cos 0.
  const auto p = t.at("pos_embed").span<float>().subspan(8, 8);
  const double expected[] = {
      std::sin(1.0), std::sin(0.01), std::cos(1.0), std::cos(0.01), 0, 0, 1, 1};
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(double{p[i]}, expected[i], 1e-7) << i;
}

TEST(params, one_name_twice__is_shared_if_the_shapes_agree) {
  Graph g;
  const nn::Params p = nn::Params(g) / "blocks" / 3;
  const Value a = p.param("weight", {2, 3});
  EXPECT_EQ(p.param("weight", {2, 3}).id, a.id);
  EXPECT_EQ(g.sources().size(), 1u);
  EXPECT_EQ(g.sources()[0].name, "blocks.3.weight");
  EXPECT_THROW(p.param("weight", {3, 2}), Error);
}

TEST(params, vectors__do_not_decay) {
  Graph g;
  const nn::Params p(g);
  p.param("weight", {2, 3});
  p.param("bias", {3});
  EXPECT_TRUE(g.sources()[0].info.decay);
  EXPECT_FALSE(g.sources()[1].info.decay);
}
