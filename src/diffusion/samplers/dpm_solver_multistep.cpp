// dpm_solver_multistep: DPM-Solver and DPM-Solver++ with differences of earlier steps (Lu et al.
// 2022, arXiv:2206.00927 and arXiv:2211.01095), as diffusers' DPMSolverMultistepScheduler. Its
// third order takes half of the second derivative and so has order 2; exact_third takes all of it.
#include <algorithm>

#include "diffusion/solver/dpm_solver.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  DpmSolverOptions dpm;
  bool euler_at_final = false;
  void fields(auto&& f) {
    dpm.fields(f);
    f("euler_at_final", euler_at_final, "the last step has order 1");
  }
  void check() const { dpm.check("dpm_solver_multistep"); }
};

int64_t order_of(const Run& run, int64_t i, const Options& o) {
  const bool few = o.dpm.lower_order_final && run.steps() < 15;
  int64_t order = std::min(o.dpm.solver_order, i + 1);
  if (few) order = std::min(order, run.steps() - i);
  return o.euler_at_final && i + 1 == run.steps() ? 1 : order;
}

// The steps in lambda: this one, then those before.
std::vector<double> lambda_steps(const Run& run, const std::vector<double>& sigmas, int64_t i) {
  std::vector<double> h;
  for (int64_t k = i; k >= 0 && k > i - 3; --k) {
    const auto n = static_cast<size_t>(k);
    h.push_back(run.lambda(sigmas[n + 1]) - run.lambda(sigmas[n]));
  }
  return h;
}

void differentiate(DpmSolverStep& step, const History& m, const std::vector<double>& h,
                   const Options& o) {
  if (h.size() < 2) return;
  step.half = h.size() == 2 && o.dpm.solver_type == "midpoint";
  const double r0 = h[1] / h[0];
  step.first = (m[0] - m[1]) / r0;
  if (h.size() < 3) return;
  const double r1 = h[2] / h[0];
  const Latent change = step.first - (m[1] - m[2]) / r1;
  step.first.add(change, r0 / (r0 + r1));
  step.second = (o.dpm.exact_third ? 2 : 1) / (r0 + r1) * change;
}

Latent run(Run& run, Latent x, const Options& o) {
  const std::vector<double> sigmas = run.finite_sigmas();
  History models(o.dpm.solver_order);
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    models.push(dpm_model(run, x, denoised, from, o.dpm));
    if (to > 0) {
      DpmSolverStep step{from, to, models[0]};
      std::vector<double> h = lambda_steps(run, sigmas, i);
      h.resize(static_cast<size_t>(order_of(run, i, o)));
      differentiate(step, models, h, o);
      x = dpm_step(run, x, step, o.dpm);
    } else {
      x = dpm_end(run, denoised, from, o.dpm);
    }
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpm_solver_multistep() {
  static const Sampler s = make_sampler<Options>(
      {.name = "dpm_solver_multistep",
       .help = "DPM-Solver and DPM-Solver++ with differences of earlier steps",
       .order = 2,
       .aliases = {{"edm_dpm_solver_multistep"},
                   {.name = "cosine_dpm_solver_multistep",
                    .options = {{"algorithm_type", "sde-dpmsolver++"}},
                    .order = 0,
                    .kind = SamplerKind::sde,
                    .help = "SDE-DPM-Solver++(2M)"},
                   {"dpm_solver_stability"},
                   {"edm_dpmpp_2m"},
                   {.name = "cosine_dpmpp_2m_sde",
                    .options = {{"algorithm_type", "sde-dpmsolver++"}},
                    .order = 0,  // it always draws
                    .kind = SamplerKind::sde,
                    .help = "SDE-DPM-Solver++(2M)"},
                   {"dpmpp_2m_flow", {{"lower_order_final", "false"}}},
                   {"dpm_solver_multistep_3", {{"solver_order", "3"}}},
                   {.name = "dpm_solver_multistep_3_exact",
                    .options = {{"solver_order", "3"}, {"exact_third", "true"}},
                    .order = 3,
                    .help = "DPM-Solver++(3M), corrected: of order 3"}}},
      run);
  return s;
}

}  // namespace ebb::samplers
