// How far numbers are from the summary that a golden file keeps of them.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "support/hashed_weights.h"

namespace ebb::testing {

// Largest difference of norm, first values and projections, over the norm.
inline double distance(const std::string& name, std::span<const float> v,
                       const nlohmann::json& golden) {
  const double norm = golden["l2"].get<double>();
  double squares = 0, worst = 0;
  for (const float x : v) squares += double{x} * double{x};
  worst = std::abs(std::sqrt(squares) - norm);
  const auto see = [&](double a, double b) {
    if (!(std::abs(a - b) <= worst)) worst = std::abs(a - b);  // also takes NaN
  };
  const auto first = golden["first"].get<std::vector<double>>();
  for (size_t i = 0; i < first.size(); ++i) see(double{v[i]}, first[i]);
  const auto projections = golden["proj"].get<std::vector<double>>();
  for (size_t k = 0; k < projections.size(); ++k)
    see(projection(name, static_cast<int>(k), v), projections[k]);
  return worst / norm;
}

}  // namespace ebb::testing
