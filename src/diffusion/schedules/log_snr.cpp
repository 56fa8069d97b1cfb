// log_snr, time_uniform, time_quadratic: times of continuous-time networks as UniPC's own program
// spaces them (Zhao et al. 2023, arXiv:2302.04867): from 1 to 1 / T in ln(alpha / sigma), evenly,
// or evenly in their root, where T is the number of timesteps. The last level is that of 1 / T.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/names.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  std::string skip = "log_snr";
  double first = 1;
  void fields(auto&& f) {
    f("skip", skip, "evenly spaced: log_snr, time_uniform (time) or time_quadratic (its root)");
    f("first", first, "time_uniform: the time of the first level, above 1 / T");
  }
  void check() const {
    check_known("log_snr: unknown skip", skip,
                std::vector<std::string>{"log_snr", "time_uniform", "time_quadratic"});
    require(first > 0 && first <= 1, "time_uniform: first must lie in (0, 1] (", first, ")");
    require(first == 1 || skip == "time_uniform", "log_snr: first (", first,
            ") is an option of time_uniform");
  }
};

// The level of time t in [1 / T, 1], ln(alpha) being straight between timesteps.
double level_at(const std::vector<double>& table, double t) {
  const auto log_alpha = [&](size_t i) { return -0.5 * std::log1p(table[i] * table[i]); };
  const double last = static_cast<double>(table.size() - 1);
  const double at = std::clamp(t * (last + 1) - 1, 0.0, last);
  const size_t low = std::min(static_cast<size_t>(at), table.size() - 2);
  const double share = at - static_cast<double>(low);
  const double log_a = (1 - share) * log_alpha(low) + share * log_alpha(low + 1);
  return std::sqrt(std::expm1(-2 * log_a));
}

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const std::vector<double>& table = in.levels.sigmas;
  const double least = 1 / static_cast<double>(table.size());
  const int64_t count = in.steps + 1;
  require(o.first > least, "time_uniform: first (", o.first, ") must be above 1 / T (", least, ")");
  std::vector<double> out;
  for (int64_t i = 0; i < count; ++i) {
    const double root = spaced(1, std::sqrt(least), i, count);
    if (o.skip == "log_snr")
      out.push_back(std::exp(spaced(std::log(table.back()), std::log(table.front()), i, count)));
    else
      out.push_back(level_at(
          table, o.skip == "time_uniform" ? spaced(o.first, least, i, count) : root * root));
  }
  return out;
}

}  // namespace

const Schedule& log_snr() {
  static const Schedule s =
      make_schedule<Options>({.name = "log_snr",
                              .help = "evenly in ln(alpha / sigma), to the smallest level (UniPC)",
                              .space = Space::ve,
                              .picks = true,
                              .to_zero = false,
                              .aliases = {{"time_uniform", {{"skip", "time_uniform"}}},
                                          {"time_quadratic", {{"skip", "time_quadratic"}}}}},
                             levels);
  return s;
}

}  // namespace ebb::schedules
