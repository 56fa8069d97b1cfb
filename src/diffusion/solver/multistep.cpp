#include "diffusion/solver/multistep.h"

#include <cmath>

#include "base/error.h"

namespace ebb {

void History::push(Latent newest) {
  vectors_.insert(vectors_.begin(), std::move(newest));
  if (vectors_.size() > limit_) vectors_.pop_back();
}

Latent History::sum(const std::vector<double>& weights) const {
  require(weights.size() <= vectors_.size(), "history: ", weights.size(), " weights of ",
          vectors_.size(), " vectors");
  Latent out;
  for (size_t k = 0; k < weights.size(); ++k) out.add(vectors_[k], weights[k]);
  return out;
}

std::vector<double> adams_bashforth(int64_t order) {
  switch (order) {
    case 1: return {1};
    case 2: return {3 / 2.0, -1 / 2.0};
    case 3: return {23 / 12.0, -16 / 12.0, 5 / 12.0};
    case 4: return {55 / 24.0, -59 / 24.0, 37 / 24.0, -9 / 24.0};
    default: fail("adams_bashforth: order must be 1 to 4 (", order, ")");
  }
}

std::vector<double> polynomial_weights(const std::vector<double>& nodes,
                                       const std::vector<double>& moments) {
  std::vector<double> weights;
  for (size_t j = 0; j < nodes.size(); ++j) {
    // The polynomial that is 1 at node j and 0 at the others, the constant first.
    std::vector<double> p = {1};
    for (size_t k = 0; k < nodes.size(); ++k) {
      if (k == j) continue;
      p.push_back(0);
      for (size_t n = p.size() - 1; n > 0; --n) p[n] = p[n - 1] - nodes[k] * p[n];
      p[0] *= -nodes[k];
      for (double& c : p) c /= nodes[j] - nodes[k];
    }
    double w = 0;
    for (size_t n = 0; n < p.size(); ++n) w += p[n] * moments[n];
    weights.push_back(w);
  }
  return weights;
}

std::vector<double> power_moments(double h, size_t count) {
  std::vector<double> out;
  for (size_t k = 1; k <= count; ++k)
    out.push_back(std::pow(h, static_cast<double>(k)) / static_cast<double>(k));
  return out;
}

std::vector<double> nodes_before(const std::vector<double>& sigmas, int64_t i, int64_t count) {
  std::vector<double> out;
  for (int64_t k = 0; k < count; ++k)
    out.push_back(sigmas[static_cast<size_t>(i - k)] - sigmas[static_cast<size_t>(i)]);
  return out;
}

}  // namespace ebb
