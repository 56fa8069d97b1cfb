// sa_solver: stochastic Adams, a multistep predictor and corrector of the stochastic equation whose
// noise a function of the level sets (Xue et al. 2023, SA-Solver, arXiv:2309.05019).
#include <cmath>
#include <limits>

#include "diffusion/solver/exponential.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/timesteps.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise;
  double start = std::numeric_limits<double>::infinity(), end = 0;
  double from_timestep = std::numeric_limits<double>::infinity(), to_timestep = 0;
  int64_t predictor_order = 3, corrector_order = 4;
  bool predict_x0 = true, simple_order_2 = false, pece = false;
  void fields(auto&& f) {
    noise.fields(f);
    f("start", start, "noise is renewed in steps to this level and below");
    f("end", end, "noise is renewed in steps to this level and above");
    f("from_timestep", from_timestep, "and in steps that begin at this timestep and below");
    f("to_timestep", to_timestep, "and in steps that begin at this timestep and above");
    f("predictor_order", predictor_order, "predictions used by the predictor, 1 to 4");
    f("corrector_order", corrector_order,
      "predictions used by the corrector, 1 to 4; 0: no corrector");
    f("predict_x0", predict_x0, "steps go by D; else by the noise seen in x");
    f("simple_order_2", simple_order_2, "simpler weights for two predictions");
    f("pece", pece, "the denoiser is evaluated again at the corrected state");
  }
  void check() const {
    noise.check();
    require(start >= end, "sa_solver: start (", start, ") must not be below end (", end, ")");
    require(from_timestep >= to_timestep, "sa_solver: from_timestep (", from_timestep,
            ") must not be below to_timestep (", to_timestep, ")");
    require(predictor_order >= 1 && predictor_order <= 4,
            "sa_solver: predictor_order must be 1 to 4 (", predictor_order, ")");
    require(corrector_order >= 0 && corrector_order <= 4,
            "sa_solver: corrector_order must be 0 to 4 (", corrector_order, ")");
  }
  SlopeRule rule() const { return simple_order_2 ? SlopeRule::linear : SlopeRule::exact; }
};

// A step as it was predicted; its correction shares its start and noise.
struct Step {
  ExponentialStep part;
  Latent start, noise;
};

class Solver {
 public:
  Solver(Run& run, const Options& o)
      : run_(run),
        o_(o),
        sigmas_(run.finite_sigmas()),
        predictions_(std::max(o.predictor_order, o.corrector_order)) {}

  // Evaluates at level i, where `x` was predicted, and corrects it.
  void ask(Latent& x, int64_t i) {
    const Latent guess = x;
    predictions_.push(evaluate(x, i));
    const bool late = run_.dialect().sa_solver_corrects_last;
    const bool skipped = level(i + 1) == 0 && !o_.pece && !late;
    const int64_t count = available(o_.corrector_order, run_.steps() - i + (late ? 2 : 0));
    if (i == 0 || skipped || count == 0) return;
    const Latent sum =
        advance(step_.part, step_.start,
                placed(run_, sigmas_, predictions_, {.step = i - 1, .newest = i, .count = count}),
                o_.rule());
    x = from_stored(sum + step_.noise, guess, x);
    if (o_.pece) predictions_.replace(evaluate(x, i));
  }

  // x at level i + 1.
  Latent predict(const Latent& x, int64_t i) {
    const double from = level(i), to = level(i + 1);
    const Dialect& dialect = run_.dialect();
    const double tau = renews(from, to) ? o_.noise.eta : 0;
    Latent noise;
    if ((tau > 0 && to > 0) || dialect.draws_unused_sa) noise = run_.noise(from, to);
    if (to == 0) return denoised_;
    const int64_t left = run_.steps() - i - (dialect.sa_solver_corrects_last ? 0 : 1);
    const int64_t count = available(o_.predictor_order, left);
    const auto part = o_.predict_x0 ? exponential_step : noise_step;
    step_ = {part(run_.space(), from, to, tau * tau), x, {}};
    step_.noise = step_.part.noise * o_.noise.s_noise * noise;
    return advance(step_.part, x,
                   placed(run_, sigmas_, predictions_, {.step = i, .newest = i, .count = count}),
                   o_.rule()) +
           step_.noise;
  }

 private:
  // Timesteps are whole numbers.
  bool renews(double from, double to) const {
    if (to > o_.start || to < o_.end) return false;
    const double t =
        std::round(run_.space() == Space::flow ? 1000 * from : timestep_of(table_of(run_), from));
    return t <= o_.from_timestep && t >= o_.to_timestep;
  }
  Latent evaluate(Latent& x, int64_t i) {
    denoised_ = run_.denoise(x, level(i));
    return predicted(run_, x, denoised_, level(i), o_.predict_x0);
  }
  // Predictions used, of `order` and no more than `left` near the end.
  int64_t available(int64_t order, int64_t left) const {
    const int64_t known = std::min(order, predictions_.size());
    const bool lowers = level(run_.steps()) == 0 || run_.dialect().sa_solver_corrects_last;
    return lowers ? std::min(known, left) : known;
  }
  double level(int64_t i) const { return sigmas_[static_cast<size_t>(i)]; }

  Run& run_;
  const Options& o_;
  std::vector<double> sigmas_;
  History predictions_;
  Latent denoised_;
  Step step_;
};

Latent run(Run& run, Latent x, const Options& o) {
  Solver solver(run, o);
  for (int64_t i = 0; i < run.steps(); ++i) {
    solver.ask(x, i);
    x = solver.predict(x, i);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& sa_solver() {
  static const Sampler s =
      make_sampler<Options>({.name = "sa_solver",
                             .help = "SA-Solver, stochastic Adams",
                             .kind = SamplerKind::sde,
                             .order = 4,
                             .aliases = {{"sa_solver_pece", {{"pece", "true"}}}}},
                            run);
  return s;
}

}  // namespace ebb::samplers
