// logit_normal: quantiles of a normal distribution of ln(sigma / (1 - sigma)), within bounds of the
// signal-to-noise ratio (Ideogram 4).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  double mean = 0, std = 1.75, tokens = 0, lowest = -15, highest = 18;
  void fields(auto&& f) {
    f("mean", mean, "of ln(sigma / (1 - sigma))");
    f("std", std, "its standard deviation");
    f("tokens", tokens, "of the image: the mean rises by ln(tokens / 1024) / 2; 0: it does not");
    f("lowest", lowest, "bound of ln(snr)");
    f("highest", highest, "bound of ln(snr)");
  }
  void check() const {
    require(std > 0 && tokens >= 0, "logit_normal: std (", std, ") must be positive, tokens (",
            tokens, ") not negative");
    require(lowest < highest, "logit_normal: lowest (", lowest, ") must be below highest (",
            highest, ")");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const double mean = o.mean + (o.tokens > 0 ? 0.5 * std::log(o.tokens / 1024) : 0);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<double> out;
  for (int64_t i = 0; i < in.steps; ++i) {
    const double p = static_cast<double>(i) / static_cast<double>(in.steps);
    const double logit = mean - o.std * normal_quantile(p);
    out.push_back(sigmoid(std::clamp(logit, o.lowest / 2, o.highest / 2)));
  }
  return with_zero(out);
}

}  // namespace

const Schedule& logit_normal() {
  static const Schedule s =
      make_schedule<Options>({.name = "logit_normal",
                              .help = "flow, quantiles of a normal distribution (Ideogram 4)",
                              .space = Space::flow},
                             levels);
  return s;
}

}  // namespace ebb::schedules
