// Path: noise level and scale of the state as functions of time, x(t) = s(t) (data + sigma(t)
// noise) (Karras et al. 2022, arXiv:2206.00364, equations 2 to 4 and table 1).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ebb {

struct Path {
  std::string name;
  std::string help;
  double (*sigma)(double t);
  double (*time)(double sigma);  // its inverse
  double (*sigma_slope)(double t);
  double (*scale)(double t);  // s
  double (*scale_slope)(double t);
};

// linear: sigma = t, s = 1 (EDM, DDIM); ve: sigma = sqrt(t), s = 1; vp: vp_sigma, s = 1 / sqrt(1 +
// sigma^2).
const std::vector<Path>& all_paths();
const Path& find_path(std::string_view name);  // throws Error, suggests the nearest

}  // namespace ebb
