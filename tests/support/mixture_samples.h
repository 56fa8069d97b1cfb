// What samplers make of the mixture that toy_data.h denoises exactly.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/toy_data.h"

namespace ebb::testing {

// run_toy() on the mixture in the call's space.
inline ToyRun run_mixture(std::string_view sampler, const std::vector<double>& start,
                          const SampleCall& call) {
  ToyModel model;
  if (call.space == Space::flow) model.denoise = on_flow(model.denoise);
  return run_toy(sampler, start, call, model);
}

// From two starts, to the digits that were published.
inline void expect_values(std::string_view sampler, const SampleCall& call,
                          const std::vector<double>& want) {
  const bool flow = call.space == Space::flow;
  const std::vector<double> start =
      flow ? std::vector<double>{-0.41, 0.21} : std::vector<double>{-6, 3.1};
  const std::vector<double> x = run_mixture(sampler, start, call).x;
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(x[i], want[i], 2e-8) << sampler;
}

// Both samplers make the same of three starts, but for rounding.
inline void expect_same_samples(const std::string& a, const SampleCall& as, const std::string& b,
                                const SampleCall& bs) {
  const std::vector<double> start = {-6, 3.1, 0.4};
  const std::vector<double> x = run_mixture(a, start, as).x, y = run_mixture(b, start, bs).x;
  for (size_t i = 0; i < start.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-12) << a << ' ' << b;
}

}  // namespace ebb::testing
