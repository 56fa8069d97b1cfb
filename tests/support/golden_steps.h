// Training steps against those that tools/golden/finetune_golden.py recorded: losses, gradients,
// and weights behind steps of AdamW.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "nn/weights.h"
#include "passes/gradients.h"
#include "support/hashed_weights.h"
#include "train/step.h"

namespace ebb::testing {

// Of f32 arithmetic through the network and its gradient, relative to the norm of each tensor.
inline constexpr double steps_tolerance = 2e-4;

struct GoldenSteps {
  nn::Weights weights;  // of the loss, hashed by their names
  NamedTensors inputs;
  nlohmann::json adamw;
  std::map<std::string, double> rates = {};
  NamedTensors given = {};  // weights that are not hashed
  std::set<std::string> undecayed = {};

  void bind(Plan& plan) const {
    for (const nn::Weight& w : weights) {
      const auto known = given.find(w.name);
      plan.bind(w.name, known == given.end() ? hashed_weight(w) : known->second.clone());
    }
  }
};

// A gradient that is 0 but for rounding, as that of a bias of keys, which softmax takes out: AdamW
// makes steps of its noise.
inline bool is_noise(const nlohmann::json& gradient) { return gradient[0] < 1e-12; }

// [norm, product with signs] of a tensor of the network; `more`: by which it may be off beside.
inline void expect_recorded(const nn::Weight& w, const Tensor& t, const nlohmann::json& want,
                            double more = 1e-9) {
  const Tensor file = nn::to_file(w, t);
  double square = 0;
  for (const float v : file.span<float>()) square += double{v} * double{v};
  const double norm = want[0], root = std::sqrt(static_cast<double>(file.numel()));
  const double near = steps_tolerance * norm + more;
  EXPECT_NEAR(std::sqrt(square), norm, near) << w.name;
  EXPECT_NEAR(projection(w.name, 0, file.span<float>()), want[1].get<double>(), near * root)
      << w.name;
}

inline void expect_gradients(const Graph& loss, const GoldenSteps& of, const nlohmann::json& want) {
  std::vector<std::string> names;
  for (const nn::Weight& w : of.weights)
    if (w.trained) names.push_back(w.name);
  ASSERT_EQ(names.size(), want["grads"].size());
  Plan plan(gradients(loss, "loss", names), open_context("cpu", {.threads = 1}));
  of.bind(plan);
  const NamedTensors out = plan.run(of.inputs);
  EXPECT_NEAR(out.at("loss").span<float>()[0], want["losses"][0].get<double>(), 1e-5);
  for (const nn::Weight& w : of.weights)
    if (w.trained) {
      const nlohmann::json& g = want["grads"][w.name];
      expect_recorded(w, out.at("grad." + w.name), g, is_noise(g) ? 1e-8 : 1e-9);
    }
}

inline void expect_steps(const Graph& loss, const GoldenSteps& of, const nlohmann::json& want) {
  const nlohmann::json& a = of.adamw;
  const train::StepOptions options{
      .settings = {a["beta1"], a["beta2"], a["eps"], a["weight_decay"]},
      .ema = false,
      .undecayed = of.undecayed,
      .rates = of.rates};
  Plan plan(train::train_step(loss, options), open_context("cpu", {.threads = 1}));
  of.bind(plan);
  plan.bind_missing();
  for (size_t step = 0; step < want["losses"].size(); ++step) {
    NamedTensors all = train::step_inputs(
        {.step = static_cast<int64_t>(step), .lr = a["lr"].get<double>()}, options);
    all.insert(of.inputs.begin(), of.inputs.end());
    EXPECT_NEAR(plan.run(all).at("loss").span<float>()[0], want["losses"][step].get<double>(), 1e-4)
        << step;
  }
  const double far = a["lr"].get<double>() * static_cast<double>(want["losses"].size());
  for (const nn::Weight& w : of.weights)
    if (w.trained)
      expect_recorded(w, plan.fetch(w.name), want["after"][w.name],
                      is_noise(want["grads"][w.name])
                          ? far * std::sqrt(static_cast<double>(w.shape.numel()))
                          : 1e-9);
}

}  // namespace ebb::testing
