#include "diffusion/levels/spacings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/names.h"
#include "diffusion/solver/timesteps.h"

namespace ebb {
namespace {

// The continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz' method.
double beta_fraction(double x, double a, double b) {
  const auto away = [](double v) { return std::abs(v) < 1e-300 ? 1e-300 : v; };
  double c = 1, d = 1 / away(1 - (a + b) * x / (a + 1)), h = d;
  for (int m = 1; m < 1000; ++m) {
    const double two = 2.0 * m;
    for (const double step : {m * (b - m) * x / ((a + two - 1) * (a + two)),
                              -(a + m) * (a + b + m) * x / ((a + two) * (a + two + 1))}) {
      d = 1 / away(1 + step * d);
      c = away(1 + step / c);
      h *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-16) break;
  }
  return h;
}

// x^a (1-x)^b / B(a, b), where y = 1 - x.
double beta_factor(double x, double y, double a, double b) {
  return std::exp(a * std::log(x) + b * std::log(y) + std::lgamma(a + b) - std::lgamma(a) -
                  std::lgamma(b));
}

double share_below(double x, double a, double b) {  // where the fraction converges fast
  return beta_factor(x, 1 - x, a, b) * beta_fraction(x, a, b) / a;
}

}  // namespace

std::vector<double> beta_spaced(double a, double b, int64_t count, double alpha, double beta) {
  std::vector<double> out = spaced(1, 0, count);
  for (double& s : out) s = b + beta_quantile(s, alpha, beta) * (a - b);
  return out;
}

std::vector<double> spread_between(std::string_view how, std::vector<double> list) {
  if (list.empty()) return list;
  const double a = list.front(), b = list.back();
  const auto count = static_cast<int64_t>(list.size());
  if (how == "karras") return karras_spaced(a, b, count, 7);
  if (how == "exponential") return log_spaced(a, b, count);
  if (how == "beta") return beta_spaced(a, b, count, 0.6, 0.6);
  check_known("schedule: unknown spread", how,
              std::vector<std::string>{"none", "karras", "exponential", "beta"});
  return list;
}

std::vector<double> log_interpolated(std::span<const double> table, int64_t count, bool f32) {
  if (count == 1) return {table.front()};
  const auto places = [f32](int64_t n) { return f32 ? added_up_f32(0, 1, n) : spaced(0, 1, n); };
  const auto size = static_cast<int64_t>(table.size());
  // From the last value on, where places are 0.
  const std::vector<double> known = places(size);
  std::vector<double> out;
  for (const double place : places(count)) {
    const double at = std::min(place, known.back());
    const auto above = std::upper_bound(known.begin() + 1, known.end() - 1, at);
    const double w = (at - above[-1]) / (above[0] - above[-1]);
    const double* low = &table[static_cast<size_t>(known.end() - above)];
    out.push_back(std::exp((1 - w) * std::log(low[0]) + w * std::log(low[-1])));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<double> added_up_f32(double a, double b, int64_t count) {
  const auto distance =
      static_cast<float>(b - a) / static_cast<float>(std::max<int64_t>(count - 1, 1));
  std::vector<double> out;
  for (auto at = static_cast<float>(a); std::ssize(out) < count; at += distance)
    out.push_back(static_cast<double>(at));
  return out;
}

TimeEnds time_ends(const ScheduleInput& in) {
  const Discretisation& d = in.levels;
  const auto time = [&](double sigma) {
    if (d.c_noise == CNoise::table) return d.c_noise_of(sigma, in.dialect.integer_timesteps);
    const bool twice = d.space == Space::flow && in.dialect.shifts_flow_twice;
    return twice ? d.scale * sigma : d.time_of(sigma);
  };
  return {time(in.sigma_max), time(in.sigma_min)};
}

double level_at_timestep(const Discretisation& levels, double t) {
  return sigma_at(levels.sigmas, t);
}

std::vector<double> last_part(std::vector<double> list, const ScheduleInput& in) {
  const auto left =
      static_cast<int64_t>(std::nearbyint(static_cast<double>(in.steps) * in.denoise)) + 1;
  if (left < static_cast<int64_t>(list.size())) list.erase(list.begin(), list.end() - left);
  list.back() = 0;
  return list;
}

double normal_quantile(double p) {
  if (p <= 0) return -std::numeric_limits<double>::infinity();
  if (p >= 1) return std::numeric_limits<double>::infinity();
  if (p > 0.5) return -normal_quantile(1 - p);
  // Newton's method on ln(share), which is concave: from the left it never goes too far.
  double z = -40;
  for (int i = 0; i < 200; ++i) {
    const double share = 0.5 * std::erfc(-z / std::numbers::sqrt2);
    const double density = std::exp(-0.5 * z * z) / std::sqrt(2 * std::numbers::pi);
    if (share == 0 || density == 0) {
      z /= 2;
      continue;
    }
    const double next = z + share / density * std::log(p / share);
    if (std::abs(next - z) <= 1e-16 * std::abs(z)) break;
    z = next;
  }
  return z;
}

double beta_share(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  return x < (a + 1) / (a + b + 2) ? share_below(x, a, b) : 1 - share_below(1 - x, b, a);
}

double beta_quantile(double p, double a, double b) {
  require(a > 0 && b > 0, "schedule: alpha (", a, ") and beta (", b, ") must be positive");
  if (p <= 0) return 0;
  if (p >= 1) return 1;
  // Near 1 the distance to 1 has the digits.
  if (p > beta_share(0.5, a, b)) return 1 - beta_quantile(1 - p, b, a);
  double low = 0, high = 0.5;
  // Where x is small the share is about c x^a.
  double x =
      std::min(std::exp((std::log(p) - std::log(beta_factor(1, 1, a, b)) + std::log(a)) / a), 0.25);
  for (int i = 0; i < 200; ++i) {
    const double error = beta_share(x, a, b) - p;
    (error > 0 ? high : low) = x;
    // Newton's step in ln(x), halving where it leaves the bracket.
    double next = x * std::exp(-error / beta_factor(x, 1 - x, a, b) * (1 - x));
    if (!(next > low && next < high)) next = (low + high) / 2;
    if (std::abs(next - x) <= 1e-16 * x) break;
    x = next;
  }
  return x;
}

}  // namespace ebb
