// For tests: predictions that are numbers made of their places, and one evaluation of a guide.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "diffusion/guidance/guide.h"

namespace ebb::testing {

struct ToyPredictions {
  int64_t first_sample = 0;  // of the batch
  bool alike = false;        // all are the conditional one
  double constant = std::nan("");
  bool all = false;  // of the constant; else the conditional one alone
  bool with_uncond = false;
};

// Numbers about 0 with a spread of 0.7; the same for a place whatever the layout.
inline double toy_value(int64_t which, int64_t index) {
  const double k = static_cast<double>(index * 16 + which + 1);
  const double t = std::sin(12.9898 * k) * 43758.5453;
  return 2 * (t - std::floor(t)) - 0.9;
}

inline std::vector<double> toy_values(Branch branch, const GuidedShape& s,
                                      const ToyPredictions& toy) {
  std::vector<double> out(static_cast<size_t>(s.batch * s.sample()));
  const bool constant = !std::isnan(toy.constant) && (toy.all || branch == Branch::cond);
  const int64_t which = toy.alike ? 0 : static_cast<int64_t>(branch);
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t p = 0; p < s.pixels(); ++p)
      for (int64_t k = 0; k < s.channels; ++k) {
        const int64_t index = ((n + toy.first_sample) * s.pixels() + p) * s.channels + k;
        out[static_cast<size_t>(n * s.sample() + s.at(p, k))] =
            constant ? toy.constant : toy_value(which, index);
      }
  return out;
}

inline std::vector<double> toy_state(const GuidedShape& s, const ToyPredictions& toy) {
  std::vector<double> x = toy_values(Branch::cond, s, {.first_sample = toy.first_sample + 7});
  for (double& v : x) v *= 3;
  return x;
}

struct ToyBranch {
  std::vector<double> result, cond, uncond;
  std::vector<Branch> asked;
};

inline ToyBranch guide_once(const std::vector<RuleCall>& rules, const GuidanceCall& call,
                            double sigma, const ToyPredictions& toy = {}) {
  ToyBranch out;
  const HostPredict<double> predict = [&](std::span<const double>, double,
                                          std::span<const Branch> branches,
                                          std::span<const std::span<double>> predictions) {
    out.asked.assign(branches.begin(), branches.end());
    for (size_t k = 0; k < branches.size(); ++k) {
      const std::vector<double> v = toy_values(branches[k], call.shape, toy);
      std::copy(v.begin(), v.end(), predictions[k].begin());
    }
  };
  const HostDenoise<double> denoise = guided<double>(predict, rules, call);
  out.cond = toy_values(Branch::cond, call.shape, toy);
  const std::vector<double> x = toy_state(call.shape, toy);
  out.result.resize(x.size());
  if (toy.with_uncond) out.uncond.resize(x.size());
  denoise(x, sigma, out.result, out.uncond);
  return out;
}

inline std::vector<float> guide_once_f32(const std::vector<RuleCall>& rules,
                                         const GuidanceCall& call, double sigma) {
  const HostPredict<float> predict = [&](std::span<const float>, double,
                                         std::span<const Branch> branches,
                                         std::span<const std::span<float>> predictions) {
    for (size_t k = 0; k < branches.size(); ++k) {
      const std::vector<double> v = toy_values(branches[k], call.shape, {});
      for (size_t i = 0; i < v.size(); ++i) predictions[k][i] = static_cast<float>(v[i]);
    }
  };
  const std::vector<double> state = toy_state(call.shape, {});
  const std::vector<float> x(state.begin(), state.end());
  std::vector<float> out(x.size());
  guided<float>(predict, rules, call)(x, sigma, out, {});
  return out;
}

}  // namespace ebb::testing
