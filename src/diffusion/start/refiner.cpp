#include "diffusion/start/refiner.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ebb {
namespace {

void check_share(double share) {
  require(share >= 0 && share <= 1, "refiner: the share must lie in [0, 1] (", share, ")");
}

}  // namespace

int64_t switch_below(const std::vector<double>& timesteps, double cutoff) {
  const auto below = [cutoff](double t) { return t < cutoff; };
  return std::find_if(timesteps.begin(), timesteps.end(), below) - timesteps.begin();
}

double timestep_cutoff(double share, int64_t timesteps) {
  check_share(share);
  // Halves go to the even number, as Python rounds.
  return std::nearbyint(static_cast<double>(timesteps) * (1 - share));
}

double share_removed(double sigma, const std::vector<double>& table) {
  require(!table.empty(), "refiner: needs the network's noise levels");
  const auto nearer = [sigma](double a, double b) {
    return std::abs(a - sigma) < std::abs(b - sigma);
  };
  const int64_t nearest = std::min_element(table.begin(), table.end(), nearer) - table.begin();
  const auto count = static_cast<int64_t>(table.size());
  return static_cast<double>(count - 1 - nearest) / static_cast<double>(count);
}

int64_t switch_by_level(const std::vector<double>& sigmas, const std::vector<double>& table,
                        double share) {
  check_share(share);
  require(!table.empty(), "refiner: needs the network's noise levels");
  const auto steps = static_cast<int64_t>(sigmas.size()) - 1;
  for (int64_t i = 0; i < steps; ++i)
    if (share_removed(sigmas[static_cast<size_t>(i)], table) >= share) return i;
  return std::max<int64_t>(steps, 0);
}

int64_t switch_by_steps(int64_t steps, double share) {
  check_share(share);
  for (int64_t i = 0; i < steps; ++i)
    if (static_cast<double>(i) / static_cast<double>(steps) >= share) return i;
  return steps;
}

}  // namespace ebb
