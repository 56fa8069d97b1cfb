// dpm_solver_singlestep: DPM-Solver and DPM-Solver++ whose higher orders start again from where a
// group of levels began (Lu et al. 2022, arXiv:2206.00927, algorithms 1 and 2, and
// arXiv:2211.01095), one evaluation a level, as diffusers' DPMSolverSinglestepScheduler.
#include "diffusion/solver/dpm_solver.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  DpmSolverOptions dpm;
  void fields(auto&& f) { dpm.fields(f); }
  void check() const {
    dpm.check("dpm_solver_singlestep");
    require(dpm.algorithm_type != "sde-dpmsolver",
            "dpm_solver_singlestep: sde-dpmsolver is for dpm_solver_multistep");
    require(!dpm.exact_third || dpm.sde(),
            "dpm_solver_singlestep: exact_third is of sde-dpmsolver++: the third order of ",
            dpm.algorithm_type, " is exact");
  }
};

// Orders of the steps: 1, 2, .. in every group. The last group ends at order 1 or is short.
std::vector<int64_t> orders(const Run& run, const DpmSolverOptions& o) {
  const int64_t n = run.steps(), most = o.solver_order;
  const bool to_zero = run.sigma(n) == 0;
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(i % most + 1);
  const bool lower = o.lower_order_final || to_zero;
  // Whole groups only: the last has an order too much, and, but for groups of one, ends at 1.
  if ((lower && n % most == 0) || to_zero) out.back() = 1;
  return out;
}

// Over the group so far: models[k] is that k levels before the latest, h[k] the distance in lambda
// from the group's start to the level after it.
void differentiate(DpmSolverStep& step, const History& m, const std::vector<double>& h,
                   const Options& o) {
  const bool midpoint = o.dpm.solver_type == "midpoint";
  if (h.size() < 2) return;
  const double r0 = h[1] / h[0];
  const auto oldest = static_cast<int64_t>(h.size()) - 1;
  step.first = (m[0] - m[oldest]) / r0;
  step.half = h.size() == 2 && midpoint;
  if (h.size() < 3 || midpoint) return;
  const double r1 = h[2] / h[0];
  const Latent near = (m[1] - m[2]) / r1, far = step.first;
  step.first = (r0 * near - r1 * far) / (r0 - r1);
  step.second = 2 / (r0 - r1) * (far - near);
}

Latent run(Run& run, Latent x, const Options& o) {
  const std::vector<double> sigmas = run.finite_sigmas();
  const std::vector<int64_t> order = orders(run, o.dpm);
  History models(o.dpm.solver_order);
  Latent start;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = run.sigma(i + 1);
    const int64_t count = order[static_cast<size_t>(i)];
    const Latent denoised = run.denoise(x, from);
    models.push(dpm_model(run, x, denoised, from, o.dpm));
    if (count == 1) start = x;
    if (to > 0) {
      const double first = sigmas[static_cast<size_t>(i - count + 1)];
      std::vector<double> h;
      for (int64_t k = i + 1; k > i - count + 1; --k)
        h.push_back(run.lambda(sigmas[static_cast<size_t>(k)]) - run.lambda(first));
      DpmSolverStep step{first, to, models[count - 1]};
      differentiate(step, models, h, o);
      x = dpm_step(run, start, step, o.dpm);
    } else {
      x = dpm_end(run, denoised, from, o.dpm);
    }
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpm_solver_singlestep() {
  static const Sampler s = make_sampler<Options>(
      {.name = "dpm_solver_singlestep",
       .help = "DPM-Solver and DPM-Solver++ in groups of levels",
       .order = 2,
       .aliases = {{.name = "dpm_solver_singlestep_3",
                    .options = {{"solver_order", "3"}, {"solver_type", "heun"}},
                    .order = 3}}},
      run);
  return s;
}

}  // namespace ebb::samplers
