// Lion's steps, against its algorithm written out.
#include <gtest/gtest.h>

#include <cmath>

#include "reference.h"
#include "train/optimizer.h"

namespace ebb::train {
namespace {

constexpr double beta1 = 0.9, beta2 = 0.99, decay = 0.3, rate = 0.01, ema_decay = 0.75;

struct Element {
  double p, g, m, ema;
};

Element stepped(const Element& e, double clip) {
  if (!(clip > 0)) return e;
  const double g = clip * e.g, c = beta1 * e.m + (1 - beta1) * g;
  const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
  Element out = e;
  out.p = e.p - rate * (sign + decay * e.p);
  out.m = beta2 * e.m + (1 - beta2) * g;
  out.ema = e.ema + (1 - ema_decay) * (out.p - e.ema);
  return out;
}

// One update of p, m and their average as a graph.
Graph update_graph(int64_t elements) {
  Graph g;
  const auto in = [&](const char* name, const Shape& shape) {
    return g.input(name, {DType::f32, shape});
  };
  const Shape all{elements};
  const Updated out = find_optimizer("lion").update(
      {.p = in("p", all),
       .g = in("g", all),
       .states = {in("m", all)},
       .lr = in("lr", {}),
       .clip = in("clip", {}),
       .ema = in("ema", all),
       .ema_decay = in("ema_decay", {}),
       .settings = {.beta1 = beta1, .beta2 = beta2, .weight_decay = decay}});
  g.output("p", out.p);
  g.output("m", out.states[0]);
  g.output("ema", out.ema);
  return g;
}

// Both signs, an interpolation of exactly 0 with a gradient and without, momentum against gradient.
const std::vector<Element> start = {{0.5, 2, 0.1, 0.4}, {-0.5, -2, -0.1, 0}, {1, 0, 0, 1},
                                    {0.2, -9, 1, 0.2},  {0.3, 0.1, -5, 0},   {-2, 1e-30, 0, 0}};

void expect_stepped(double clip) {
  const auto n = static_cast<int64_t>(start.size());
  const Graph g = update_graph(n);
  test::RefInputs in;
  const auto column = [&](const char* name, double Element::*of) {
    std::vector<double> v;
    for (const Element& e : start) v.push_back(e.*of);
    in[name] = test::ref_array({n}, v);
  };
  column("p", &Element::p), column("g", &Element::g);
  column("m", &Element::m), column("ema", &Element::ema);
  in["lr"] = test::ref_array({}, {rate});
  in["clip"] = test::ref_array({}, {clip});
  in["ema_decay"] = test::ref_array({}, {ema_decay});
  const auto values = test::evaluate_reference(g, in);
  for (size_t i = 0; i < start.size(); ++i) {
    const Element want = stepped(start[i], clip);
    EXPECT_DOUBLE_EQ(test::output_of(g, values, "p").v[i], want.p) << i;
    EXPECT_DOUBLE_EQ(test::output_of(g, values, "m").v[i], want.m) << i;
    EXPECT_DOUBLE_EQ(test::output_of(g, values, "ema").v[i], want.ema) << i;
  }
}

}  // namespace

TEST(lion, a_step__is_the_algorithm) { expect_stepped(0.5); }

TEST(lion, a_clip_of_0__changes_nothing) { expect_stepped(0); }

TEST(optimizers, states__are_known_by_their_names) {
  EXPECT_TRUE(is_optimizer_state("m.conv.weight"));
  EXPECT_TRUE(is_optimizer_state("v.conv.weight"));
  EXPECT_FALSE(is_optimizer_state("raw.conv.weight"));
  EXPECT_FALSE(is_optimizer_state("middle.weight"));
}

}  // namespace ebb::train
