// er_sde: the extended reverse-time SDE of Cui et al. 2023 (arXiv:2309.06169), where a scale
// of noise s(sigma / alpha) says how fast noise is renewed; up to two derivatives of D.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise;
  int64_t max_stage = 3;
  std::string solver_type = "er_sde";
  void fields(auto&& f) {
    noise.fields(f);
    f("max_stage", max_stage, "predictions of the denoiser used, 1 to 3");
    f("solver_type", solver_type,
      "scale of noise: er_sde (eta is 1 or 0), reverse_sde (v^(eta + 1)) or ode (v)");
  }
  void check() const {
    noise.check();
    require(max_stage >= 1 && max_stage <= 3, "er_sde: max_stage must be 1 to 3 (", max_stage, ")");
    check_choice("er_sde: solver_type", solver_type, {"er_sde", "reverse_sde", "ode"});
  }
  bool adds_noise() const { return noise.eta > 0 && solver_type != "ode"; }
};

// Of v = sigma / alpha. Without noise it is v.
double noise_scale(const Options& o, double v) {
  if (o.solver_type == "ode" || o.noise.eta == 0) return v;
  if (o.solver_type == "reverse_sde") return std::pow(v, o.noise.eta + 1);
  return v * (std::exp(std::pow(v, 0.3)) + 10);
}

// Integrals of 1 / s and (v - from) / s from `from` down to `to`, with the sign turned: 1 / s > 0.
struct Integrals {
  double whole = 0, line = 0;
};
Integrals integrals(const Run& run, const Options& o, double from, double to) {
  Integrals sum;
  const auto add = [&](double v, double weight) {
    sum.whole += weight / noise_scale(o, v);
    sum.line += weight * (v - from) / noise_scale(o, v);
  };
  if (const auto points = run.dialect().er_sde_points) {
    const double part = (from - to) / static_cast<double>(*points);
    for (int64_t k = 0; k < *points; ++k) add(to + static_cast<double>(k) * part, part);
    return sum;
  }
  // Simpson's rule in ln(v).
  constexpr int intervals = 64;
  const double part = std::log(from / to) / intervals;
  for (int k = 0; k <= intervals; ++k) {
    const double v = to * std::exp(k * part);
    const double share = k == 0 || k == intervals ? 1 : (k % 2 == 1 ? 4 : 2);
    add(v, v * part * share / 3);
  }
  return sum;
}

// D and its divided differences in v, as they are known so far.
struct Slopes {
  Latent denoised, first, second;
  double level = 0, level_before = 0;

  int64_t update(int64_t i, const Latent& d, double v) {
    const Latent first_before = first;
    if (i > 0) first = (d - denoised) / (v - level);
    if (i > 1) second = (first - first_before) / ((v - level_before) / 2);
    denoised = d;
    level_before = level;
    level = v;
    return i + 1;
  }
};

// As the equation reads eta.
Options equation(const Run& run, Options o) {
  if (run.dialect().er_sde_eta_switches) o.noise.eta = 1;
  require(o.solver_type == "reverse_sde" || o.noise.eta == 0 || o.noise.eta == 1,
          "er_sde: eta must be 0 or 1 with solver_type ", o.solver_type, " (", o.noise.eta, ")");
  return o;
}

Latent run(Run& run, Latent x, const Options& given) {
  const Options o = equation(run, given);
  std::vector<double> sigmas = run.finite_sigmas();
  const double first = run.dialect().er_sde_first;
  const bool stands_in = sigmas[0] != run.sigma(0) && first > 0;
  if (stands_in) sigmas[0] = first;
  Slopes slopes;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = sigmas[static_cast<size_t>(i)], to = run.sigma(i + 1);
    const Latent d = run.denoise(x, stands_in ? run.sigma(i) : from);
    const double a = from / run.alpha(from), b = to / run.alpha(to), alpha = run.alpha(to);
    const int64_t stage = std::min(slopes.update(i, d, a), o.max_stage);
    if (to > 0) {
      const double scale = noise_scale(o, b), keep = scale / noise_scale(o, a), step = b - a;
      x = alpha / run.alpha(from) * keep * x + alpha * (1 - keep) * d;
      const Integrals sum = integrals(run, o, a, b);
      if (stage >= 2) x += alpha * (step + scale * sum.whole) * slopes.first;
      if (stage >= 3) x += alpha * (step * step / 2 + scale * sum.line) * slopes.second;
      const double noise = std::sqrt(std::max(b * b - a * a * keep * keep, 0.0));
      if (given.adds_noise()) x.add(run.noise(from, to), alpha * noise * o.noise.s_noise);
    } else {
      x = d;
    }
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& er_sde() {
  static const Sampler s = make_sampler<Options>(
      {.name = "er_sde", .help = "extended reverse-time SDE", .kind = SamplerKind::sde, .order = 2},
      run);
  return s;
}

}  // namespace ebb::samplers
