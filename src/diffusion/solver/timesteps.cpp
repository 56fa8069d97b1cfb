#include "diffusion/solver/timesteps.h"

#include <algorithm>
#include <cmath>

namespace ebb {

// beta: squares of 1000 numbers between 0.00085^0.5 and 0.012^0.5.
const std::vector<double>& stable_diffusion_table() {
  static const std::vector<double> table = [] {
    std::vector<double> out;
    const double low = std::sqrt(0.00085), high = std::sqrt(0.012);
    double alpha_bar = 1;
    for (int i = 0; i < 1000; ++i) {
      const double root = low + (high - low) * i / 999;
      alpha_bar *= 1 - root * root;
      out.push_back(std::sqrt((1 - alpha_bar) / alpha_bar));
    }
    return out;
  }();
  return table;
}

const std::vector<double>& table_of(const Run& run) {
  return run.table().empty() ? stable_diffusion_table() : run.table();
}

double timestep_of(const std::vector<double>& table, double sigma) {
  if (sigma <= table.front()) return 0;
  if (sigma >= table.back()) return static_cast<double>(table.size() - 1);
  const auto above = std::upper_bound(table.begin(), table.end(), sigma);
  const double share = std::log(sigma / above[-1]) / std::log(above[0] / above[-1]);
  return static_cast<double>(above - table.begin() - 1) + share;
}

double sigma_at(const std::vector<double>& table, double timestep) {
  const double last = static_cast<double>(table.size() - 1);
  const double t = std::clamp(timestep, 0.0, last);
  const auto low = static_cast<size_t>(t);
  const double share = t - std::floor(t);
  if (share == 0) return table[low];
  return table[low] * std::pow(table[low + 1] / table[low], share);
}

std::vector<double> every_timestep(int64_t apart, const std::vector<double>& table) {
  const auto step = static_cast<size_t>(apart);
  std::vector<double> out;
  for (size_t i = (table.size() - 1) % step; i < table.size(); i += step) out.push_back(table[i]);
  return out;
}

double nearest_timestep(const std::vector<double>& table, double sigma, int64_t apart) {
  const auto place = [sigma](const std::vector<double>& levels) {
    const auto above = std::lower_bound(levels.begin(), levels.end(), sigma);
    if (above == levels.begin()) return int64_t{0};
    if (above == levels.end()) return static_cast<int64_t>(levels.size()) - 1;
    const bool lower = std::log(sigma / *(above - 1)) <= std::log(*above / sigma);
    return above - levels.begin() - (lower ? 1 : 0);
  };
  const auto first = (static_cast<int64_t>(table.size()) - 1) % apart;
  return static_cast<double>(apart == 1 ? place(table)
                                        : first + apart * place(every_timestep(apart, table)));
}

VpTarget vp_target(const Run& run, double from, double to) {
  if (to > 0 || !run.dialect().vp_ends_at_table) return {to, 1};
  const double sigma = std::min(from, table_of(run).front());
  return {sigma, 1 / std::sqrt(1 + sigma * sigma)};
}

}  // namespace ebb
