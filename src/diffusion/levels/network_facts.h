// NetworkFacts: how a network was trained: its levels and its prediction target.
#pragma once

#include <string>

#include "diffusion/levels/discretisation.h"
#include "diffusion/levels/prediction.h"

namespace ebb {

struct NetworkOptions {
  LevelOptions levels;
  std::string prediction = "usual";
  double sigma_data = 0.5;
  void fields(auto&& f) {
    levels.fields(f);
    f("prediction", prediction,
      "eps, v, x0, edm, edm_v, ve, rflow, flow or dataward; usual: what goes with the levels");
    f("sigma_data", sigma_data, "edm, edm_v: standard deviation of the data");
  }
  void check() const;  // checks single values; throws Error, suggests the nearest
};

struct NetworkFacts {
  Discretisation levels;
  Prediction prediction = Prediction::eps;
  double sigma_data = 0.5;
};
// Throws Error for inconsistent options.
NetworkFacts network_facts(const NetworkOptions& options);

}  // namespace ebb
