// linear_quadratic: a straight line to a small threshold, then a parabola (Movie Gen, Polyak et al.
// 2024, arXiv:2410.13720, section 3.4.2).
#include "base/error.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  double threshold = 0.025;
  int64_t linear_steps = 0;
  void fields(auto&& f) {
    f("threshold", threshold, "share of the way that the straight line goes");
    f("linear_steps", linear_steps, "steps on the straight line; 0: half of them");
  }
  void check() const {
    require(threshold > 0 && threshold < 1, "linear_quadratic: threshold must lie in (0, 1) (",
            threshold, ")");
    require(linear_steps >= 0, "linear_quadratic: linear_steps must not be negative (",
            linear_steps, ")");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  if (in.steps == 1) return {in.sigma_max, 0};
  const int64_t first = o.linear_steps > 0 ? o.linear_steps : in.steps / 2;
  require(first < in.steps, "linear_quadratic: linear_steps (", first, ") must be below steps (",
          in.steps, ")");
  const auto line = static_cast<double>(first), n = static_cast<double>(in.steps), rest = n - line;
  const double gap = line - o.threshold * n;
  const double a = gap / (line * rest * rest), b = o.threshold / line - 2 * gap / (rest * rest);
  std::vector<double> out;
  for (int64_t k = 0; k < in.steps; ++k) {
    const auto i = static_cast<double>(k);
    const double way = k < first ? i * o.threshold / line : a * i * i + b * i + a * line * line;
    out.push_back((1 - way) * in.sigma_max);
  }
  return with_zero(out);
}

}  // namespace

const Schedule& linear_quadratic() {
  static const Schedule s = make_schedule<Options>(
      {.name = "linear_quadratic", .help = "linear, then quadratic"}, levels);
  return s;
}

}  // namespace ebb::schedules
