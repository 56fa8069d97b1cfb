// restart: Heun's method that goes back up once it is near the end: noise is added up to a higher
// level, and the way from there is gone again (Xu et al. 2023, arXiv:2306.14878; the numbers as in
// the Stable Diffusion web UI). Of 20 steps and more, some are kept for the ways gone again, and
// the levels are chosen anew (Karras et al. 2022, equation 5) between the first and the smallest
// one above 0.
#include <algorithm>

#include "diffusion/solver/dpm_step.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/spaced.h"

namespace ebb::samplers {
namespace {

struct Options {
  int64_t restarts = -1, restart_steps = 0;
  double restart_from = 0.1, restart_to = 2;
  double s_noise = 1;
  void fields(auto&& f) {
    f("restarts", restarts, "how often it goes back; -1: once from 20 steps on, twice from 36 on");
    f("restart_steps", restart_steps, "steps for each way; 0: 9, or a quarter of 36 and more");
    f("restart_from", restart_from, "the level from which it goes back");
    f("restart_to", restart_to, "the level to which it goes back");
    f("s_noise", s_noise, "standard deviation of the noise that is added");
  }
  void check() const {
    require(restarts >= -1, "restart: restarts must not be negative (", restarts, ")");
    require(restart_steps >= 0, "restart: restart_steps must not be negative (", restart_steps,
            ")");
    require(restart_from > 0 && restart_to > restart_from && std::isfinite(restart_to),
            "restart: needs 0 < restart_from < restart_to (", restart_from, ", ", restart_to, ")");
    require(restarts != 0 || s_noise == Options().s_noise,
            "restart: with restarts 0 there is no way ", "back, so s_noise (", s_noise,
            ") would do nothing");
    if (restarts == 0) need_no_way("with restarts 0 there is no way back");
    check_not_negative("s_noise", s_noise);
  }
  // Throws Error for invalid restart options. Programs have one s_noise for all runs.
  void need_no_way(const std::string& why) const {
    const Options usual;
    require(restart_steps == usual.restart_steps && restart_from == usual.restart_from &&
                restart_to == usual.restart_to,
            "restart: ", why, ", so restart_steps (", restart_steps, "), restart_from (",
            restart_from, ") and restart_to (", restart_to, ") would do nothing");
  }
};

size_t nearest(const std::vector<double>& levels, double level) {
  const auto nearer = [&](double a, double b) { return std::abs(a - level) < std::abs(b - level); };
  return static_cast<size_t>(std::min_element(levels.begin(), levels.end(), nearer) -
                             levels.begin());
}

// The levels in the order in which they are gone through; where one is above the last, noise is
// added.
std::vector<double> way(const Run& run, const Options& o) {
  const int64_t steps = run.steps();
  const int64_t times = o.restarts >= 0 ? o.restarts : steps >= 36 ? 2 : steps >= 20 ? 1 : 0;
  const int64_t each = o.restart_steps > 0 ? o.restart_steps : steps >= 36 ? steps / 4 : 9;
  if (times == 0) {
    o.need_no_way(str(steps, " steps make no way back"));
    return run.sigmas();
  }
  const bool to_zero = run.sigmas().back() == 0;
  const int64_t rest = steps - each * times + (to_zero ? 0 : 1);
  require(rest >= 2, "restart: ", times, " ways of ", each, " steps leave nothing of ", steps,
          " steps");
  std::vector<double> levels = karras_spaced(run.sigma(0), smallest_level(run), rest);
  if (to_zero) levels.push_back(0);
  const size_t low = nearest(levels, o.restart_from), high = nearest(levels, o.restart_to);
  if (low == 0 || high >= low || levels[low] == 0) {
    o.need_no_way(str("no level lies between ", levels[low], " and ", levels[high]));
    return levels;
  }
  std::vector<double> out(levels.begin(), levels.begin() + static_cast<int64_t>(low) + 1);
  for (int64_t t = 0; t < times; ++t) {
    const std::vector<double> again = karras_spaced(levels[high], levels[low], each + 1);
    out.insert(out.end(), again.begin(), again.end());
  }
  out.insert(out.end(), levels.begin() + static_cast<int64_t>(low) + 1, levels.end());
  return out;
}

Latent heun_step(Run& run, Latent x, double from, double to) {
  Latent d = noise_in(run, x, from);
  if (to > 0) {
    Latent y = x + (to - from) * d;
    d = (d + noise_in(run, y, to)) / 2;
  }
  return x + (to - from) * d;
}

Latent run(Run& run, Latent x, const Options& o) {
  const std::vector<double> levels = way(run, o);
  int64_t steps = 0, done = 0;
  for (size_t i = 1; i < levels.size(); ++i) steps += levels[i] < levels[i - 1];
  for (size_t i = 1; i < levels.size(); ++i) {
    const double from = levels[i - 1], to = levels[i];
    if (to >= from) {  // the same up to rounding where nothing lies between
      x.add(run.noise(from, to), std::sqrt(to * to - from * from) * o.s_noise);
      continue;
    }
    x = heun_step(run, std::move(x), from, to);
    run.done(++done, steps, to, x);
  }
  return x;
}

}  // namespace

const Sampler& restart() {
  static const Sampler s =
      make_sampler<Options>({.name = "restart",
                             .help = "Heun's method, going back up near the end",
                             .kind = SamplerKind::sde,
                             .order = 2,
                             .flow = false},
                            run);
  return s;
}

}  // namespace ebb::samplers
