// The history of multistep samplers, and its weights.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "diffusion/solver/latent.h"

namespace ebb {

// The latest vectors, the newest first.
class History {
 public:
  explicit History(int64_t limit) : limit_(static_cast<size_t>(limit)) {}

  void push(Latent newest);
  void replace(Latent newest) { vectors_.front() = std::move(newest); }
  int64_t size() const { return static_cast<int64_t>(vectors_.size()); }
  const Latent& operator[](int64_t back) const { return vectors_[static_cast<size_t>(back)]; }
  // Of the newest, as many as there are weights.
  Latent sum(const std::vector<double>& weights) const;

 private:
  size_t limit_;
  std::vector<Latent> vectors_;
};

// Weights of the newest 1 to 4 slopes, of equal steps of length 1 (Adams and Bashforth).
std::vector<double> adams_bashforth(int64_t order);

// Integral over a step of the polynomial through values at `nodes` (each is minus the place where
// the step starts), as weights of the values. moments[k]: integral of (place - start)^k, as many as
// there are nodes.
std::vector<double> polynomial_weights(const std::vector<double>& nodes,
                                       const std::vector<double>& moments);
// The moments of a step of length h with weight 1: h^(k + 1) / (k + 1).
std::vector<double> power_moments(double h, size_t count);
// sigmas[i], sigmas[i - 1], ... minus sigmas[i].
std::vector<double> nodes_before(const std::vector<double>& sigmas, int64_t i, int64_t count);

}  // namespace ebb
