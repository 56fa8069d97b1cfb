// Mean and variance of what samplers make of normal data. There every sampler is affine in its
// start and in what it draws: the factors give both exactly, without drawing.
#include <gtest/gtest.h>

#include <numeric>

#include "diffusion/solver/sampler.h"
#include "support/toy_data.h"

namespace ebb {
namespace {

using testing::karras;

struct Normal {
  double mean = 0.7, deviation = 0.6;
};
struct Moments {
  double mean = 0, variance = 0;
};

// One run: the first value starts at the mean, the second 1 above it, and each of the others has
// one draw that is 1.
Moments moments_of(std::string_view sampler, const SampleCall& call, const Normal& data = {}) {
  const auto draws = static_cast<size_t>(count(sampler, call).draws);
  const testing::ToyDenoiser denoise = testing::normal_denoiser(data.mean, data.deviation);
  testing::ToyModel model{.denoise = denoise, .uncond = denoise};
  model.noise = [](std::span<double> z, const NoiseDraw& d) {
    std::fill(z.begin(), z.end(), 0);
    z[static_cast<size_t>(d.index) + 2] = 1;
  };
  std::vector<double> start(draws + 2, data.mean);
  start[1] += 1;
  const std::vector<double> x = run_toy(sampler, start, call, model).x;
  const double begin = data.deviation * data.deviation + call.sigmas[0] * call.sigmas[0];
  Moments out{.mean = x[0], .variance = std::pow(x[1] - x[0], 2) * begin};
  for (size_t k = 2; k < x.size(); ++k) out.variance += std::pow(x[k] - x[0], 2);
  return out;
}

// ---- data of one point ---------------------------------------------------------------------

// x stays normal, with exactly the level's deviation, whatever is renewed.
TEST(moments, of_one_point__are_those_of_the_level) {
  const std::vector<double> sigmas = {10, 6, 4, 2.5, 1.5, 1, 0.6, 0.4, 0.3};
  for (const Sampler* s : all_samplers()) {
    // Its noise is for data of variance 1, or its weights are not quite those of constants.
    if (s->adaptive || s->name == "ipndm_v" || s->name == "deis") continue;
    for (const SamplerFacts& facts : all_facts_of(*s)) {
      const Moments m = moments_of(facts.name, {.sigmas = sigmas}, {.mean = 0, .deviation = 0});
      EXPECT_NEAR(m.mean, 0, 1e-12) << facts.name;
      EXPECT_NEAR(m.variance, 0.09, 1e-10) << facts.name;
    }
  }
}

TEST(moments, of_one_point_with_noise__are_those_of_the_level) {
  const std::vector<double> sigmas = karras(14, 0.03, 10, false);
  const std::vector<std::pair<std::string, OptionTexts>> samplers = {
      {"restart", {{"restarts", "2"}, {"restart_steps", "3"}}},
      {"euler", {{"s_churn", "5"}}},
      {"heun", {{"s_churn", "5"}, {"s_tmax", "3"}}},
      {"dpm_2", {{"s_churn", "5"}}},
      {"heunpp2", {{"s_churn", "5"}}},
      {"heunpp2_exact", {{"s_churn", "5"}}},
      {"res_2s", {{"eta", "0.7"}}},
      {"res_multistep", {{"eta", "0.7"}}},
      {"ddim", {{"eta", "0.7"}}},
      {"dpm_fast", {{"eta", "0.7"}}},
      {"dpm_2_ancestral", {{"eta", "3"}}},
      {"dpmpp_sde", {{"eta", "0.4"}, {"r", "0.3"}}},
      {"sa_solver", {{"start", "5"}, {"end", "0.2"}, {"eta", "0.6"}}},
      {"dpm_solver_multistep", {{"algorithm_type", "sde-dpmsolver++"}, {"solver_order", "3"}}},
  };
  for (const auto& [name, options] : samplers) {
    const Moments m = moments_of(name, {sigmas, options}, {.mean = 0, .deviation = 0});
    EXPECT_NEAR(m.variance, 0.0009, 1e-11) << name;
  }
}

// ---- normal data ---------------------------------------------------------------------------

// The error of few steps falls with their number; what is left once its first order is taken out
// is little.
TEST(moments, of_normal_data__are_theirs_in_the_limit) {
  for (const Sampler* s : all_samplers()) {
    if (s->adaptive || s->kind == SamplerKind::distilled || s->name == "ipndm_v") continue;
    const auto at = [&](int64_t steps) {
      return moments_of(s->name, {.sigmas = karras(steps, 0.002, 20)});
    };
    const Moments few = at(120), more = at(480), most = at(960);
    EXPECT_NEAR(few.mean, 0.7, 0.04) << s->name;
    EXPECT_NEAR(few.variance, 0.36, 0.05) << s->name;
    EXPECT_NEAR(2 * most.mean - more.mean, 0.7, 1e-3) << s->name;
    EXPECT_NEAR(2 * most.variance - more.variance, 0.36, 1e-3) << s->name;
  }
}

// Step by step, from the papers' formulas: D is `keep` x, the rest is linear.
class Affine {
 public:
  Affine(double from, double to, double eta) : from_(from), to_(to), eta_(eta) {}

  double ancestral_euler() const { return towards(keep(from_), from_, down()); }
  double ancestral_dpm_2() const {
    const double middle = std::sqrt(from_ * down());
    const double y = 1 + (middle - from_) * (1 - keep(from_)) / from_;
    return 1 + (down() - from_) * (1 - keep(middle)) / middle * y;
  }
  double ancestral_2s() const {
    const double middle = std::sqrt(from_ * down());
    return towards(keep(middle) * towards(keep(from_), from_, middle), from_, down());
  }
  // Its first noise, which only D sees, and its second one.
  double sde() const {
    const double middle = std::sqrt(from_ * to_);
    const Affine half(from_, middle, eta_);
    return towards(keep(middle) * half.ancestral_euler(), from_, down());
  }
  double sde_first_noise() const {
    const double middle = std::sqrt(from_ * to_);
    return (1 - down() / from_) * keep(middle) * Affine(from_, middle, eta_).up();
  }
  double up() const {
    return std::min(to_, eta_ * to_ * std::sqrt(from_ * from_ - to_ * to_) / from_);
  }

 private:
  static double keep(double sigma) { return 0.36 / (0.36 + sigma * sigma); }
  // The state at `to` where D is `d`, as if it stayed so.
  static double towards(double d, double from, double to) { return d + to / from * (1 - d); }
  double down() const { return std::sqrt(to_ * to_ - up() * up()); }

  double from_, to_, eta_;
};

struct Formula {
  std::string sampler;
  double (*factor)(const Affine&);
  double (*other_noise)(const Affine&);
};

TEST(moments, variance__is_exact_at_every_eta) {
  const auto none = +[](const Affine&) { return 0.0; };
  const std::vector<Formula> formulas = {
      {"euler_ancestral", [](const Affine& a) { return a.ancestral_euler(); }, none},
      {"ddim", [](const Affine& a) { return a.ancestral_euler(); }, none},
      {"euler_ancestral_cfg_pp", [](const Affine& a) { return a.ancestral_euler(); }, none},
      {"dpm_2_ancestral", [](const Affine& a) { return a.ancestral_dpm_2(); }, none},
      {"dpmpp_2s_ancestral", [](const Affine& a) { return a.ancestral_2s(); }, none},
      {"dpmpp_sde", [](const Affine& a) { return a.sde(); },
       [](const Affine& a) { return a.sde_first_noise(); }}};
  const std::vector<double> sigmas = karras(10, 0.03, 14.6, false);
  for (const Formula& f : formulas)
    for (const double eta : {0.0, 0.5, 1.0}) {
      double variance = 0.36 + sigmas[0] * sigmas[0];
      for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
        const Affine step(sigmas[i], sigmas[i + 1], eta);
        variance = std::pow(f.factor(step), 2) * variance + std::pow(step.up(), 2) +
                   std::pow(f.other_noise(step), 2);
      }
      const SampleCall call{.sigmas = sigmas, .options = {{"eta", std::to_string(eta)}}};
      EXPECT_NEAR(moments_of(f.sampler, call).variance, variance, 1e-9) << f.sampler << eta;
    }
}

// Multistep: the covariance of x with the previous prediction is carried on too.
TEST(moments, variance_of_dpmpp_2m_sde__is_exact_at_every_eta) {
  const std::vector<double> sigmas = karras(10, 0.03, 14.6, false);
  for (const double eta : {0.0, 0.5, 1.0}) {
    double xx = 0.36 + sigmas[0] * sigmas[0], xd = 0, dd = 0, h_before = 0;
    for (size_t i = 0; i + 1 < sigmas.size(); ++i) {
      const double from = sigmas[i], to = sigmas[i + 1], h = std::log(from / to);
      const double keep = 0.36 / (0.36 + from * from), share = -std::expm1(-h * (1 + eta));
      const double slope = i > 0 ? share / 2 * h / h_before : 0;
      // x' = a x + b d + noise, d' = keep x.
      const double a = to / from * std::exp(-h * eta) + (share + slope) * keep, b = -slope;
      const double noise = to * to * -std::expm1(-2 * h * eta);
      const double next = a * a * xx + 2 * a * b * xd + b * b * dd + noise;
      xd = keep * (a * xx + b * xd);
      dd = keep * keep * xx;
      xx = next;
      h_before = h;
    }
    const SampleCall call{.sigmas = sigmas, .options = {{"eta", std::to_string(eta)}}};
    EXPECT_NEAR(moments_of("dpmpp_2m_sde", call).variance, xx, 1e-9) << eta;
  }
}

}  // namespace
}  // namespace ebb
