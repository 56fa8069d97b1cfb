// Four steps of optimisers, by training steps on the CPU, against those of transformers' Adafactor,
// of prodigyopt and of AdamW with bitsandbytes' maps (tools/golden/optimizer_golden.py), whose
// numbers are of float64.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_file.h"
#include "support/hashed_weights.h"
#include "train/checkpoint.h"
#include "train/dynamic_code.h"
#include "train/state.h"
#include "train/step.h"

namespace ebb::testing::golden_optimizers_test {
namespace {

using namespace train;

// Of what the steps change, and of states, over their norms: this, or where more is lost to
// rounding so many times what the reference loses of it in f32. Adam divides by roots of small
// numbers, and where steps are small beside the weights, what is added to a weight of f32 keeps few
// of its digits (of adafactor_warmup, whose steps are 1e-6 of a weight, two); Prodigy finds its
// rate by how far those weights have come.
constexpr double close = 2e-5, of_reference = 4;
// Of moments in codes: a number that lies on the border of two entries may get the other one. Of a
// step, in which few of all numbers do, a fifth.
constexpr double close_coded = 1e-3, step_coded = close_coded / 5;

const nlohmann::json& golden() {
  static const nlohmann::json all = read_golden("optimizers");
  return all;
}

nn::Weights weights() {
  nn::Weights out;
  for (const auto& [name, shape] : golden()["shapes"].items())
    out.push_back({.name = name, .shape = Shape(shape.get<std::vector<int64_t>>())});
  return out;
}

Tensor scaled(Tensor t, const auto& f) {
  for (float& v : t.span<float>()) v = static_cast<float>(f(double{v}));
  return t;
}

NamedTensors first_weights() {
  NamedTensors out;
  for (const nn::Weight& w : weights())
    out[w.name] =
        scaled(hashed_input("weight." + w.name, w.shape), [](double v) { return 0.1 * v; });
  return out;
}

Tensor gradient(const nn::Weight& w, int64_t step) {
  const Tensor all = hashed_input(str("gradient.", w.name, ".all"), w.shape);
  const float* same = all.span<float>().data();
  return scaled(hashed_input(str("gradient.", w.name, ".", step), w.shape), [&](double v) {
    const double sum = 0.9 * double{*same++} + 0.3 * v;
    return 0.01 * sum * sum * sum;
  });
}

// A loss whose gradients are inputs: the sum over all weights of <w, gradient>.
Graph linear_loss() {
  Graph g;
  Value loss = ops::constant(g, 0, {});
  for (const nn::Weight& w : weights()) {
    const Value p = g.source(Source::Kind::param, w.name, {DType::f32, w.shape});
    const Value d = g.input("gradient." + w.name, p.type());
    std::vector<int64_t> all;
    for (int64_t i = 0; i < w.shape.rank(); ++i) all.push_back(i);
    const Value part = ops::sum_of({p, d}, all, [](auto x) { return x[0] * x[1]; });
    loss = ops::map({loss, ops::reshape(part, {})}, [](auto x) { return x[0] + x[1]; });
  }
  g.output("loss", loss);
  return g;
}

StepOptions options_of(const nlohmann::json& golden_case) {
  const nlohmann::json& s = golden()["settings"];
  return {.optimizer = golden_case["optimizer"],
          .settings = {.beta1 = s["beta1"],
                       .beta2 = s["beta2"],
                       .eps = s["eps"],
                       .weight_decay = s["weight_decay"],
                       .options = golden_case["options"]},
          .max_norm = golden_case["clip"]};
}

// A state as numbers: what its codes stand for.
std::vector<float> numbers_of(const TrainState& s, const std::string& name) {
  const Tensor& t = s.tensors.at(name);
  if (t.dtype() == DType::f32) return {t.span<float>().begin(), t.span<float>().end()};
  const std::string kind = name.substr(0, 1), weight = name.substr(name.find('.'));
  const auto entries = golden()["maps"][kind].get<std::vector<double>>();
  const auto codes = t.span<uint8_t>();
  const auto largest = s.tensors.at(kind + "8_max" + weight).span<float>();
  std::vector<float> out(static_cast<size_t>(s.tensors.at(weight.substr(1)).numel()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<float>(entries[codes[i]] * double{largest[i / 256]});
  return out;
}

TrainState trained(const nlohmann::json& of, const StepOptions& options) {
  const Context context = open_context("cpu", {.threads = 2});
  TrainState state =
      initial_state(weights(), 1, first_weights(), find_optimizer(options.optimizer));
  Plan plan(train_step(linear_loss(), options), context);
  bind_state(plan, state);
  for (int64_t step = 0; step < golden()["steps"]; ++step) {
    NamedTensors in = step_inputs({.step = step, .lr = of["lr"], .ema_decay = 0.5}, options);
    for (const nn::Weight& w : state.weights) in["gradient." + w.name] = gradient(w, step);
    EXPECT_EQ(plan.run(in).at("finite").span<float>()[0], 1);
  }
  fetch_state(plan, state, context);
  return state;
}

double tolerance(const nlohmann::json& golden) {
  return std::max(close, of_reference * golden["f64_rel_error"].get<double>());
}

void expect_recorded(const std::string& case_name) {
  const nlohmann::json& of = golden()["cases"][case_name];
  const TrainState state = trained(of, options_of(of));
  const NamedTensors before = first_weights();
  const double rounded = of["optimizer"] == "adamw8bit" ? step_coded : 0;
  for (const auto& [name, want] : of["change"].items()) {
    std::vector<float> change;
    for (size_t i = 0; i < state.tensors.at(name).span<float>().size(); ++i)
      change.push_back(state.tensors.at(name).span<float>()[i] - before.at(name).span<float>()[i]);
    EXPECT_LT(distance(name, change, want), std::max(tolerance(want), rounded)) << name;
  }
  for (const auto& [name, want] : of["states"].items())
    EXPECT_LT(distance(name, numbers_of(state, name), want),
              name[1] == '8' ? close_coded : tolerance(want))
        << name;
  for (const auto& [name, want] : of["run"].items())
    EXPECT_NEAR(state.tensors.at(name).span<float>()[0] / want["value"].get<double>(), 1,
                tolerance(want))
        << name;
}

}  // namespace

TEST(golden_optimizers, adafactor) { expect_recorded("adafactor"); }
TEST(golden_optimizers, adafactor_scaled) { expect_recorded("adafactor_scaled"); }
TEST(golden_optimizers, adafactor_relative) { expect_recorded("adafactor_relative"); }
TEST(golden_optimizers, adafactor_warmup) { expect_recorded("adafactor_warmup"); }
TEST(golden_optimizers, adafactor_clipped) { expect_recorded("adafactor_clipped"); }
TEST(golden_optimizers, adamw8bit) { expect_recorded("adamw8bit"); }
TEST(golden_optimizers, adamw8bit_clipped) { expect_recorded("adamw8bit_clipped"); }
TEST(golden_optimizers, prodigy_clipped) { expect_recorded("prodigy_clipped"); }
TEST(golden_optimizers, prodigy) { expect_recorded("prodigy"); }
TEST(golden_optimizers, prodigy_all) { expect_recorded("prodigy_all"); }
TEST(golden_optimizers, prodigy_coupled) { expect_recorded("prodigy_coupled"); }

// A norm that is not finite makes the clip 0, and leaves everything as it was.
TEST(golden_optimizers, a_step_that_is_skipped__changes_nothing) {
  for (const std::string name : {"adamw", "lion", "adamw8bit", "adafactor", "prodigy"}) {
    const StepOptions o{.optimizer = name, .settings = {.weight_decay = 0.1}};
    const Context context = open_context("cpu", {.threads = 2});
    TrainState state = initial_state(weights(), 1, first_weights(), find_optimizer(name));
    Plan plan(train_step(linear_loss(), o), context);
    bind_state(plan, state);
    const auto run = [&](int64_t step, bool spoilt) {
      NamedTensors in = step_inputs({.step = step, .lr = 1e-3, .ema_decay = 0.5}, o);
      for (const nn::Weight& w : state.weights) in["gradient." + w.name] = gradient(w, step);
      if (spoilt) in["gradient.vector"].span<float>()[3] = INFINITY;
      return plan.run(in).at("finite").span<float>()[0];
    };
    EXPECT_EQ(run(0, false), 1);
    fetch_state(plan, state, context);
    NamedTensors before;
    for (const auto& [tensor, t] : state.tensors) before[tensor] = t.clone();
    EXPECT_EQ(run(1, true), 0);
    fetch_state(plan, state, context);
    for (const auto& [tensor, t] : state.tensors)
      EXPECT_EQ(std::memcmp(t.raw(), before.at(tensor).raw(), static_cast<size_t>(t.bytes())), 0)
          << name << " " << tensor;
  }
}

// States of other types than their weights', and numbers of the run, lie in files as they are.
TEST(golden_optimizers, a_run_that_goes_on_from_its_checkpoint__has_the_same_bits) {
  for (const std::string name : {"adamw8bit", "adafactor", "prodigy"}) {
    const Folder folder;
    const Optimizer& optimizer = find_optimizer(name);
    const StepOptions o{.optimizer = name, .settings = {.weight_decay = 0.1}};
    const Context context = open_context("cpu", {.threads = 2});
    const auto two_steps = [&](TrainState& state) {
      Plan plan(train_step(linear_loss(), o), context);
      bind_state(plan, state);
      for (int i = 0; i < 2; ++i, ++state.step) {
        NamedTensors in = step_inputs({.step = state.step, .lr = 1e-2, .ema_decay = 0.5}, o);
        for (const nn::Weight& w : state.weights)
          in["gradient." + w.name] = gradient(w, state.step);
        plan.run(in);
      }
      fetch_state(plan, state, context);
    };
    TrainState state = initial_state(weights(), 1, first_weights(), optimizer);
    two_steps(state);
    const RunInfo info{.model = "toy"};
    save_checkpoint(folder.path(), state, {.info = info});
    TrainState again = load_state(folder.path(), weights(), {}, optimizer);
    two_steps(state);
    two_steps(again);
    ASSERT_EQ(again.tensors.size(), state.tensors.size());
    for (const auto& [tensor, t] : state.tensors)
      EXPECT_EQ(
          std::memcmp(t.raw(), again.tensors.at(tensor).raw(), static_cast<size_t>(t.bytes())), 0)
          << name << " " << tensor;
  }
}

TEST(dynamic_code, all_codes__are_the_recorded_entries) {
  const std::pair<const char*, DynamicMap> maps[] = {{"m", DynamicMap::with_sign},
                                                     {"v", DynamicMap::without_sign}};
  for (const auto& [name, map] : maps) {
    const Scalar x = Scalar::input(0);
    const Scalar results[] = {decoded(x, map), encoded(decoded(x, map), map)};
    const Expr expr(1, results);
    const auto entries = golden()["maps"][name].get<std::vector<double>>();
    for (int code = 0; code < 256; ++code) {
      const double in[] = {static_cast<double>(code)};
      double out[2];
      expr.evaluate(in, out);
      const double entry = entries[static_cast<size_t>(code)];
      EXPECT_NEAR(out[0], entry, 1e-6 * std::abs(entry)) << name << code;
      EXPECT_EQ(out[1], code) << name;
    }
  }
}

// Between two entries the nearer one, on both sides of the middle.
TEST(dynamic_code, numbers_between_entries__become_the_nearer) {
  const std::pair<const char*, DynamicMap> maps[] = {{"m", DynamicMap::with_sign},
                                                     {"v", DynamicMap::without_sign}};
  for (const auto& [name, map] : maps) {
    const Scalar results[] = {encoded(Scalar::input(0), map)};
    const Expr expr(1, results);
    const auto entries = golden()["maps"][name].get<std::vector<double>>();
    for (size_t code = 0; code < 255; ++code)
      for (const double share : {0.49, 0.51}) {
        const double in[] = {entries[code] + share * (entries[code + 1] - entries[code])};
        double out[1];
        expr.evaluate(in, out);
        EXPECT_EQ(out[0], static_cast<double>(code + (share > 0.5))) << name << code;
      }
  }
}

}  // namespace ebb::testing::golden_optimizers_test
