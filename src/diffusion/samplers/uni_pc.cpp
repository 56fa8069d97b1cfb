// uni_pc: a predictor, and a corrector that uses the next step's prediction at no extra cost (Zhao
// et al. 2023, UniPC, arXiv:2302.04867).
#include <algorithm>

#include "diffusion/solver/exponential.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  int64_t order = 3;
  std::string variant = "bh1";
  bool predict_x0 = true, lower_order_final = true, corrector = true;
  std::vector<int64_t> disable_corrector;
  void fields(auto&& f) {
    f("order", order, "predictions of the denoiser used, 1 to 4");
    f("variant", variant, "weights for two predictions: B1 (bh1), B2 (bh2), exact (vary_coeff)");
    f("predict_x0", predict_x0, "steps go by D; else by the noise seen in x");
    f("lower_order_final", lower_order_final, "the last steps have orders ..., 2, 1");
    f("corrector", corrector, "steps are corrected by the prediction at their end");
    f("disable_corrector", disable_corrector, "steps, from 0, that are not corrected");
  }
  void check() const {
    require(order >= 1 && order <= 4, "uni_pc: order must be 1 to 4 (", order, ")");
    check_choice("uni_pc: variant", variant, {"bh1", "bh2", "vary_coeff"});
  }
  SlopeRule rule() const {
    if (variant == "vary_coeff") return SlopeRule::exact;
    return variant == "bh1" ? SlopeRule::linear : SlopeRule::expm1;
  }
  SlopeRule corrector_rule(const Run& run) const {
    const bool slips = run.dialect().uni_pc_slips && rule() == SlopeRule::exact;
    return slips ? SlopeRule::slipped : rule();
  }
  bool corrects(int64_t step) const {
    return corrector && std::find(disable_corrector.begin(), disable_corrector.end(), step) ==
                            disable_corrector.end();
  }
};

// Levels with finite lambdas at both ends, in dialects that have them.
std::vector<double> levels_of(const Run& run) {
  std::vector<double> s = run.finite_sigmas();
  const std::optional<double> last = run.dialect().uni_pc_last;
  if (s.back() > 0 || !last) return s;
  require(*last < s[s.size() - 2], "uni_pc: ends at ", *last, " for 0 in dialect ",
          run.dialect().name, ", which is not below the last level (", s[s.size() - 2], ")");
  s.back() = *last;
  return s;
}

Latent run(Run& run, Latent x, const Options& o) {
  const std::vector<double> sigmas = levels_of(run);
  const int64_t steps = run.steps();
  History predictions(o.order);
  Latent denoised;
  const auto ask = [&](Latent& at, double sigma) {
    denoised = run.denoise(at, sigma);
    predictions.push(predicted(run, at, denoised, sigma, o.predict_x0));
  };
  ask(x, sigmas[0]);
  for (int64_t i = 0; i < steps; ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = sigmas[static_cast<size_t>(i + 1)];
    if (to == 0) {
      x = denoised;
      run.done(i, x);
      break;
    }
    int64_t order = std::min(o.order, i + 1);
    if (o.lower_order_final) order = std::min(order, steps - i);
    const ExponentialStep step =
        (o.predict_x0 ? exponential_step : noise_step)(run.space(), from, to, 0);
    std::vector<KnownPrediction> known =
        placed(run, sigmas, predictions, {.step = i, .newest = i, .count = order});
    // Two predictions use the rule's weights; more are integrated exactly.
    Latent next = advance(step, x, known, o.rule());
    if (i + 1 < steps) {
      const Latent guess = next;
      ask(next, to);
      known.push_back({1, predictions[0]});
      if (o.corrects(i))
        next = from_stored(advance(step, x, known, o.corrector_rule(run)), guess, next);
    }
    x = next;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& uni_pc() {
  static const Sampler s =
      make_sampler<Options>({.name = "uni_pc",
                             .help = "UniPC, a multistep predictor and corrector",
                             .order = 4,
                             .aliases = {{.name = "unipc_multistep",
                                          .options = {{"order", "2"}, {"variant", "bh2"}},
                                          .order = 3},
                                         {.name = "uni_pc_bh2", .options = {{"variant", "bh2"}}},
                                         // On times of UniPC's own program.
                                         {.name = "unipc_snr",
                                          .options = {{"order", "3"}, {"variant", "bh1"}},
                                          .schedule = "log_snr"},
                                         {.name = "unipc_tu",
                                          .options = {{"order", "2"}, {"variant", "bh2"}},
                                          .order = 3,
                                          .schedule = "time_uniform"},
                                         {.name = "unipc_tq",
                                          .options = {{"order", "3"}, {"variant", "bh1"}},
                                          .schedule = "time_quadratic"},
                                         {.name = "unipc_snr_2",
                                          .options = {{"order", "1"}, {"variant", "vary_coeff"}},
                                          .order = 2,
                                          .schedule = "log_snr"},
                                         {.name = "unipc_tu_2",
                                          .options = {{"order", "3"}, {"variant", "bh1"}},
                                          .schedule = "time_uniform"}}},
                            run);
  return s;
}

}  // namespace ebb::samplers
