// Levels evenly spaced in some function, from a to b, both included.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

// The value at `i` of `count` from a to b; a if there is only one.
double spaced(double a, double b, int64_t i, int64_t count);
std::vector<double> spaced(double a, double b, int64_t count);
// In ln(sigma).
std::vector<double> log_spaced(double a, double b, int64_t count);
// In sigma^(1/rho) (Karras et al. 2022, arXiv:2206.00364, equation 5).
std::vector<double> karras_spaced(double a, double b, int64_t count, double rho = 7);

}  // namespace ebb
