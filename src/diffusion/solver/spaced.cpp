#include "diffusion/solver/spaced.h"

#include <cmath>

namespace ebb {

double spaced(double a, double b, int64_t i, int64_t count) {
  if (count == 1) return a;
  return a + (b - a) * static_cast<double>(i) / static_cast<double>(count - 1);
}

std::vector<double> spaced(double a, double b, int64_t count) {
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(spaced(a, b, i, count));
  return out;
}

std::vector<double> log_spaced(double a, double b, int64_t count) {
  std::vector<double> out = spaced(std::log(a), std::log(b), count);
  for (double& s : out) s = std::exp(s);
  return out;
}

std::vector<double> karras_spaced(double a, double b, int64_t count, double rho) {
  std::vector<double> out = spaced(std::pow(a, 1 / rho), std::pow(b, 1 / rho), count);
  for (double& s : out) s = std::pow(s, rho);
  return out;
}

}  // namespace ebb
