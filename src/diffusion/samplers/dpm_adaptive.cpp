// dpm_adaptive: DPM-Solver-12 or -23 with steps chosen by the difference of the two orders (Lu et
// al. 2022, arXiv:2206.00927, appendix C; the controller of step sizes as in k-diffusion). Of the
// levels only the first and the smallest above 0 count; it ends at the latter.
#include <array>

#include "diffusion/solver/dpm_step.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  int64_t order = 3;
  double rtol = 0.05, atol = 0.0078, h_init = 0.05;
  double pcoeff = 0, icoeff = 1, dcoeff = 0, accept_safety = 0.81;
  EtaOptions noise = {.eta = 0};
  void fields(auto&& f) {
    f("order", order, "3 or 2: the higher order of the two that are compared");
    f("rtol", rtol, "error allowed, relative to the state");
    f("atol", atol, "error allowed, absolute");
    f("h_init", h_init, "first step, in ln(sigma)");
    f("pcoeff", pcoeff, "of the controller of step sizes: proportional");
    f("icoeff", icoeff, "of the controller of step sizes: integral");
    f("dcoeff", dcoeff, "of the controller of step sizes: differential");
    f("accept_safety", accept_safety, "a step counts if the next one may be this much of it");
    noise.fields(f);
  }
  void check() const;
};

void Options::check() const {
  require(order == 2 || order == 3, "dpm_adaptive: order must be 2 or 3 (", order, ")");
  require(rtol >= 0 && std::isfinite(rtol), "dpm_adaptive: rtol must not be negative (", rtol, ")");
  require(atol > 0 && std::isfinite(atol), "dpm_adaptive: atol must be above 0 (", atol, ")");
  require(h_init > 0 && std::isfinite(h_init), "dpm_adaptive: h_init must be above 0 (", h_init,
          ")");
  require(std::isfinite(pcoeff) && std::isfinite(icoeff) && std::isfinite(dcoeff),
          "dpm_adaptive: pcoeff (", pcoeff, "), icoeff (", icoeff, ") and dcoeff (", dcoeff,
          ") must be finite");
  require(accept_safety > 0 && accept_safety <= 1,
          "dpm_adaptive: accept_safety must lie in (0, 1] (", accept_safety, ")");
  noise.check();
}

// A PID controller on the logarithm of the error.
class StepSize {
 public:
  explicit StepSize(const Options& o) : o_(o), h_(o.h_init) {
    const double order = o.noise.eta > 0 ? 1.5 : static_cast<double>(o.order);
    powers_ = {(o.pcoeff + o.icoeff + o.dcoeff) / order, -(o.pcoeff + 2 * o.dcoeff) / order,
               o.dcoeff / order};
  }

  double h() const { return h_; }
  // Chooses the next step; whether this one counts.
  bool accept(double error) {
    require(std::isfinite(error), "dpm_adaptive: the error of a step is not finite (", error, ")");
    const double inverse = 1 / (1e-8 + error);
    if (first_) inverses_.fill(inverse);
    first_ = false;
    inverses_[0] = inverse;
    double factor = 1;
    for (size_t i = 0; i < 3; ++i) factor *= std::pow(inverses_[i], powers_[i]);
    factor = 1 + std::atan(factor - 1);
    h_ *= factor;
    if (!(factor >= o_.accept_safety)) return false;
    inverses_[2] = inverses_[1];
    inverses_[1] = inverses_[0];
    return true;
  }

 private:
  const Options& o_;
  double h_;
  bool first_ = true;
  std::array<double, 3> powers_, inverses_;  // the latest first
};

constexpr int64_t most_attempts = 100000;

Latent run(Run& run, Latent x, const Options& o) {
  check_flow_noise(run, "eta", o.noise.eta);
  if (ends_at_once(run, x)) return x;
  const double end = -std::log(smallest_level(run));
  double t = -std::log(run.sigma(0));
  StepSize size(o);
  Latent before = x;
  int64_t steps = 0;
  for (int64_t attempts = 0; t < end - 1e-5; ++attempts) {
    const double next = std::min(end, t + size.h());
    const double from = std::exp(-t), to = std::exp(-next);
    require(attempts < most_attempts && next > t, "dpm_adaptive: steps (", size.h(),
            " in ln(sigma)) are too small at noise level ", from, ", after ", attempts);
    const NoisyTarget target = noisy_target(from, to, end, o.noise.eta);
    DpmStep step(run, x, t, target.t);
    const Latent low = o.order == 2 ? step.first() : step.second(1.0 / 3);
    Latent high = o.order == 2 ? step.second() : step.third();
    if (!size.accept(run.distance(low, high, before, {o.atol, o.rtol}))) {
      require(size.h() > 1e-9, "dpm_adaptive: no step is small enough at noise level ", from);
      continue;
    }
    if (target.noise > 0 || run.dialect().draws_unused_eta)
      high.add(run.noise(from, to), target.noise * o.noise.s_noise);
    before = low;
    x = high;
    t = next;
    const double left = t < end ? std::min(std::ceil((end - t) / size.h()), 1e6) : 0;
    ++steps;
    run.done(steps, steps + static_cast<int64_t>(left), to, x);
  }
  return x;
}

}  // namespace

const Sampler& dpm_adaptive() {
  static const Sampler s =
      make_sampler<Options>({.name = "dpm_adaptive",
                             .help = "DPM-Solver with adaptive steps by an error estimate",
                             .order = 0,
                             .adaptive = true},
                            run);
  return s;
}

}  // namespace ebb::samplers
