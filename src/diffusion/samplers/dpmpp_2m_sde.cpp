// dpmpp_2m_sde: SDE-DPM-Solver++(2M), D carried on along a line through the last two (Lu et al.
// 2022, arXiv:2211.01095, appendix; eta as in k-diffusion).
#include "diffusion/solver/exponential_sde.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise;
  std::string solver_type = "midpoint";
  void fields(auto&& f) {
    noise.fields(f);
    f("solver_type", solver_type, "weight of the line's slope: midpoint or heun");
  }
  void check() const {
    noise.check();
    check_choice("dpmpp_2m_sde: solver_type", solver_type, {"midpoint", "heun"});
  }
};

Latent run(Run& run, Latent x, const Options& o) {
  Latent before;
  double h_before = 0;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const SdeStep step(run, i, o.noise);
    const Latent d = run.denoise(x, step.from());
    if (step.last()) {
      x = d;
    } else {
      x = step.held(x, d);
      const double H = step.H();
      const double share = o.solver_type == "heun" ? H * phi(2, -H) : -std::expm1(-H) / 2;
      if (i > 0) x.add(d - before, step.alpha() * share * step.h() / h_before);
      step.renoise(x);
    }
    before = d;
    h_before = step.h();
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpmpp_2m_sde() {
  static const Sampler s =
      make_sampler<Options>({.name = "dpmpp_2m_sde",
                             .help = "DPM-Solver++(2M), stochastic",
                             .kind = SamplerKind::sde,
                             .order = 2,
                             .aliases = {{"dpmpp_2m_sde_gpu"},
                                         {"dpmpp_2m_sde_heun", {{"solver_type", "heun"}}},
                                         {"dpmpp_2m_sde_heun_gpu", {{"solver_type", "heun"}}},
                                         {"dpmpp_2m_sde_bt"}}},
                            run);
  return s;
}

}  // namespace ebb::samplers
