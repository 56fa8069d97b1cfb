#include "diffusion/solver/path.h"

#include <cmath>

#include "base/names.h"
#include "diffusion/solver/vp.h"

namespace ebb {
namespace {

double one(double) { return 1; }
double zero(double) { return 0; }
double same(double t) { return t; }

double vp_slope(double t) { return vp_sigma_slope(t); }
double vp_scale(double t) {
  const double sigma = vp_sigma(t);
  return 1 / std::sqrt(1 + sigma * sigma);
}
double vp_scale_slope(double t) { return -0.5 * vp_beta(t) * vp_scale(t); }

}  // namespace

const std::vector<Path>& all_paths() {
  static const std::vector<Path> paths = {
      {"linear", "sigma = t, unscaled", same, same, one, one, zero},
      {"vp", "variance preserving", +[](double t) { return vp_sigma(t); },
       +[](double sigma) { return vp_time(sigma); }, vp_slope, vp_scale, vp_scale_slope},
      {"ve", "sigma = sqrt(t), unscaled", +[](double t) { return std::sqrt(t); },
       +[](double sigma) { return sigma * sigma; }, +[](double t) { return 0.5 / std::sqrt(t); },
       one, zero},
  };
  return paths;
}

const Path& find_path(std::string_view name) {
  return find_known("path: unknown name", name, all_paths(), &Path::name);
}

}  // namespace ebb
