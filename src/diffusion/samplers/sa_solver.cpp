// sa_solver: stochastic Adams, a multistep predictor and corrector of the stochastic equation whose
// noise a function of the level sets (Xue et al. 2023, SA-Solver, arXiv:2309.05019).
#include <limits>

#include "diffusion/solver/exponential.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise;
  double start = std::numeric_limits<double>::infinity(), end = 0;
  int64_t predictor_order = 3, corrector_order = 4;
  bool simple_order_2 = false, pece = false;
  void fields(auto&& f) {
    noise.fields(f);
    f("start", start, "noise is renewed in steps to this level and below");
    f("end", end, "noise is renewed in steps to this level and above");
    f("predictor_order", predictor_order, "answers of the denoiser that predict, 1 to 4");
    f("corrector_order", corrector_order, "answers that correct, 1 to 4; 0: no corrector");
    f("simple_order_2", simple_order_2, "two answers make a line with simpler weights");
    f("pece", pece, "the denoiser is asked again at the corrected state");
  }
  void check() const {
    noise.check();
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
        answers_(std::max(o.predictor_order, o.corrector_order)) {}

  // Asks at level i, where `x` was predicted, and corrects it.
  void ask(Latent& x, int64_t i) {
    answers_.push(run_.denoise(x, level(i)));
    const bool to_zero = level(i + 1) == 0;
    int64_t count = std::min(o_.corrector_order, answers_.size());
    if (level(run_.steps()) == 0) count = std::min(count, run_.steps() - i);
    if (i == 0 || (to_zero && !o_.pece) || count == 0) return;
    x = advance(step_.part, step_.start, placed(i - 1, i, count), o_.rule()) + step_.noise;
    if (o_.pece) answers_.replace(run_.denoise(x, level(i)));
  }

  // x at level i + 1.
  Latent predict(const Latent& x, int64_t i) {
    const double from = level(i), to = level(i + 1);
    if (to == 0) return answers_[0];
    int64_t count = std::min(o_.predictor_order, answers_.size());
    if (level(run_.steps()) == 0) count = std::min(count, run_.steps() - 1 - i);
    const double tau = to <= o_.start && to >= o_.end ? o_.noise.eta : 0;
    step_ = {exponential_step(run_.space(), from, to, tau * tau), x, {}};
    if (tau > 0) step_.noise = step_.part.noise * o_.noise.s_noise * run_.noise(from, to);
    return advance(step_.part, x, placed(i, i, count), o_.rule()) + step_.noise;
  }

 private:
  double level(int64_t i) const { return sigmas_[static_cast<size_t>(i)]; }

  // The newest answers, the first of them at level `newest`, placed for the step from level i; for
  // the line of two, the one at its start comes first.
  std::vector<Answer> placed(int64_t i, int64_t newest, int64_t count) const {
    std::vector<Answer> out;
    for (int64_t k = 0; k < count; ++k)
      out.push_back(
          {(run_.lambda(level(newest - k)) - run_.lambda(level(i))) / step_.part.h, answers_[k]});
    if (newest > i && count == 2) std::swap(out[0], out[1]);
    return out;
  }

  Run& run_;
  const Options& o_;
  std::vector<double> sigmas_;
  History answers_;
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
