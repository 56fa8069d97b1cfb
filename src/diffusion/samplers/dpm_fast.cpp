// dpm_fast: DPM-Solver of orders 3, 2 and 1 on equal steps in ln(sigma), with as many evaluations
// as there are steps (Lu et al. 2022, arXiv:2206.00927, section 3.4; noise as in k-diffusion). Of
// the levels only the first and the smallest above 0 count; it ends at the latter.
#include "diffusion/solver/dpm_step.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise = {.eta = 0};
  void fields(auto&& f) { noise.fields(f); }
  void check() const { noise.check(); }
};

// Of the steps, for n evaluations.
std::vector<int> orders(int64_t n) {
  std::vector<int> out(static_cast<size_t>(n / 3), 3);
  if (n % 3 != 0)
    out.push_back(static_cast<int>(n % 3));
  else
    out.back() = 2, out.push_back(1);
  return out;
}

Latent step(DpmStep step, int order) {
  return order == 1 ? step.first() : order == 2 ? step.second() : step.third();
}

Latent run(Run& run, Latent x, const Options& o) {
  check_flow_noise(run, "eta", o.noise.eta);
  if (ends_at_once(run, x)) return x;
  const double start = -std::log(run.sigma(0)), end = -std::log(smallest_level(run));
  const std::vector<int> plan = orders(run.steps());
  const auto steps = static_cast<int64_t>(plan.size());
  const auto time = [&](int64_t i) {
    return start + (end - start) * static_cast<double>(i) / static_cast<double>(steps);
  };
  for (int64_t i = 0; i < steps; ++i) {
    const double from = std::exp(-time(i)), to = std::exp(-time(i + 1));
    const NoisyTarget target = noisy_target(from, to, end, o.noise.eta);
    x = step(DpmStep(run, x, time(i), target.t), plan[static_cast<size_t>(i)]);
    if (target.noise > 0 || run.dialect().draws_unused_eta)
      x.add(run.noise(from, to), target.noise * o.noise.s_noise);
    run.done(i + 1, steps, to, x);
  }
  return x;
}

}  // namespace

const Sampler& dpm_fast() {
  static const Sampler s =
      make_sampler<Options>({.name = "dpm_fast",
                             .help = "DPM-Solver of orders 3, 2, 1 on equal steps in ln(sigma)",
                             .order = 2},
                            run);
  return s;
}

}  // namespace ebb::samplers
