// Guides: what they ask for, what they give, whatever the batch, layout and precision.
#include "diffusion/guidance/guide.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "diffusion/guidance/conditions.h"
#include "diffusion/guidance/sag_blur.h"
#include "diffusion/solver/sampler.h"
#include "support/files.h"
#include "support/toy_data.h"
#include "support/toy_predictions.h"

namespace ebb {
namespace {

using testing::expect_error;
using testing::guide_once;
using testing::ToyBranch;

const GuidedShape shape{2, 8, 8, 4};

bool guides(const GuidanceRule& r) {
  return r.name != "interval" && r.name != "scale_steps" && r.name != "s_min_uncond";
}

// A window that holds at every step.
OptionTexts always_on(const GuidanceRule& r) {
  OptionTexts out;
  for (const Option& o : r.options()) {
    if (o.name == "start_excluded") out.emplace_back(o.name, "false");
    if (o.name == "start") out.emplace_back(o.name, "0");
    if (o.name == "stop") out.emplace_back(o.name, "1");
    if (o.name == "zero_init_steps") out.emplace_back(o.name, "0");
  }
  return out;
}

TEST(guide, batch__gives_what_its_samples_give) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    const std::vector<RuleCall> rules = {{"cfg"}, {r->name, always_on(*r)}};
    const std::vector<double> both = guide_once(rules, {.shape = shape}, 2.5).result;
    for (int64_t n = 0; n < 2; ++n) {
      const ToyBranch one = guide_once(rules, {.shape = {1, 8, 8, 4}}, 2.5, {.first_sample = n});
      for (int64_t i = 0; i < shape.sample(); ++i)
        EXPECT_EQ(both[static_cast<size_t>(n * shape.sample() + i)],
                  one.result[static_cast<size_t>(i)])
            << r->name;
    }
  }
}

TEST(guide, channels_first__gives_the_same_values_elsewhere) {
  GuidedShape first = shape;
  first.channels_first = true;
  for (const GuidanceRule* r : all_guidance_rules()) {
    const std::vector<RuleCall> rules = {{"cfg"}, {r->name, always_on(*r)}};
    const auto a = guide_once(rules, {.shape = shape}, 2.5).result;
    const auto b = guide_once(rules, {.shape = first}, 2.5).result;
    for (int64_t n = 0; n < shape.batch; ++n)
      for (int64_t p = 0; p < shape.pixels(); ++p)
        for (int64_t k = 0; k < shape.channels; ++k)
          EXPECT_NEAR(a[static_cast<size_t>(n * shape.sample() + shape.at(p, k))],
                      b[static_cast<size_t>(n * shape.sample() + first.at(p, k))], 1e-10)
              << r->name;
  }
}

TEST(guide, single_precision__is_near_double) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    const std::vector<RuleCall> rules = {{"cfg"}, {r->name, always_on(*r)}};
    const auto a = guide_once(rules, {.shape = shape}, 2.5).result;
    const auto b = testing::guide_once_f32(rules, {.shape = shape}, 2.5);
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 5e-5) << r->name;
  }
}

// Linear rules are independent of the form; linearity is checked by their weights.
TEST(guide, weights_of_linear_rules__have_the_sum_1) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    const Guide guide({{r->name, always_on(*r)}});
    const auto f = guide.factors({.sigma = 2.5, .step = 1, .steps = 4});
    if (!f) continue;
    double sum = f->own;
    for (const auto& [branch, w] : f->weights) sum += w;
    EXPECT_NEAR(sum, 1, 1e-12) << r->name;
  }
}

TEST(guide, predictions_that_agree__are_the_result) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    if (r->name == "dynamic_threshold" || r->name == "epsilon_scaling") continue;  // they divide
    const auto a = guide_once({{r->name, always_on(*r)}}, {.shape = shape}, 2.5, {.alike = true});
    // cfg_norm adds 1e-8 to a norm.
    for (size_t i = 0; i < a.result.size(); ++i)
      EXPECT_NEAR(a.result[i], a.cond[i], 1e-7) << r->name;
  }
}

TEST(guide, predictions_without_variance__stay_finite) {
  for (const double value : {0.0, 0.7})
    for (const GuidanceRule* r : all_guidance_rules())
      for (const GuidedShape& s : {shape, GuidedShape{1, 1, 1, 1}, GuidedShape{1, 3, 5, 2}}) {
        const std::vector<RuleCall> rules = {{"cfg"}, {r->name, always_on(*r)}};
        for (const bool all : {false, true}) {
          const auto a = guide_once(rules, {.shape = s}, 2.5, {.constant = value, .all = all});
          for (const double v : a.result) EXPECT_TRUE(std::isfinite(v)) << r->name;
        }
      }
}

TEST(guide, scale_of_1__needs_the_conditional_branch_alone) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    if (!guides(*r)) continue;
    const auto options = r->options();
    const bool has = std::any_of(options.begin(), options.end(), [](const Option& o) {
      return o.name == "use_original_formulation";
    });
    if (!has || r->name == "fdg" || r->name == "mimic" || r->name == "perp_neg") continue;
    OptionTexts texts = always_on(*r);
    texts.emplace_back("scale", "1.0000000000001");
    if (r->name == "dual_cfg") texts.emplace_back("image_guidance_scale", "1");
    const auto a = guide_once({{r->name, texts}}, {.shape = shape}, 2.5);
    EXPECT_EQ(a.asked, std::vector<Branch>{Branch::cond}) << r->name;
    EXPECT_EQ(a.result, a.cond) << r->name;
    texts.back() = {"scale", "0"};
    texts.emplace_back("use_original_formulation", "true");
    if (r->name == "dual_cfg") texts.emplace_back("image_guidance_scale", "1");
    EXPECT_EQ(guide_once({{r->name, texts}}, {.shape = shape}, 2.5).result, a.cond) << r->name;
  }
}

TEST(guide, samplers_that_need_the_unconditional_prediction__get_it) {
  const auto a =
      guide_once({{"cfg", {{"scale", "1"}}}}, {.shape = shape}, 2.5, {.with_uncond = true});
  EXPECT_EQ(a.result, a.cond);
  EXPECT_EQ(a.asked, (std::vector<Branch>{Branch::cond, Branch::uncond}));
  EXPECT_EQ(a.uncond, testing::toy_values(Branch::uncond, shape, {}));
}

TEST(guide, no_rules__give_the_conditional_prediction) {
  const auto a = guide_once({}, {.shape = shape}, 2.5);
  EXPECT_EQ(a.result, a.cond);
}

TEST(guide, linear_rules_in_order__are_one_sum) {
  const Guide guide({{"cfg", {{"scale", "3"}}},
                     {"skip_layers", {{"start_excluded", "false"}, {"start", "0"}, {"stop", "1"}}},
                     {"autoguidance", {{"scale", "2"}}}});
  const auto f = guide.factors({.sigma = 1});
  ASSERT_TRUE(f);
  EXPECT_NEAR(f->weight(Branch::cond), 2 * (3 + 2.8), 1e-12);
  EXPECT_NEAR(f->weight(Branch::uncond), 2 * -2, 1e-12);
  EXPECT_NEAR(f->weight(Branch::skipped), 2 * -2.8, 1e-12);
  EXPECT_NEAR(f->weight(Branch::weak), -1, 1e-12);
}

// ---- when ----------------------------------------------------------------------------------

TEST(guidance_interval, ends__are_as_written) {
  const auto on = [](OptionTexts window, double sigma, int64_t step = 0) {
    const Guide guide({{"interval", window}, {"cfg"}});
    return guide.branches({.sigma = sigma, .step = step, .steps = 10}).size() == 2;
  };
  const OptionTexts levels = {{"sigma_lo", "0.28"}, {"sigma_hi", "2.9"}};
  EXPECT_FALSE(on(levels, 0.28));
  EXPECT_TRUE(on(levels, std::nextafter(0.28, 1)));
  EXPECT_TRUE(on(levels, 2.9));
  EXPECT_FALSE(on(levels, std::nextafter(2.9, 3)));
  EXPECT_TRUE(on({{"sigma_lo", "0.28"}, {"sigma_hi", "2.9"}, {"sigma_lo_included", "true"}}, 0.28));
  const OptionTexts steps = {{"start", "0.25"}, {"stop", "0.5"}};  // int(2.5) <= step < 5
  EXPECT_FALSE(on(steps, 1, 1));
  EXPECT_TRUE(on(steps, 1, 2));
  EXPECT_TRUE(on(steps, 1, 4));
  EXPECT_FALSE(on(steps, 1, 5));
  EXPECT_FALSE(on({{"start", "0"}, {"start_excluded", "true"}}, 1, 0));
  EXPECT_TRUE(on({{"start", "0"}, {"start_excluded", "true"}}, 1, 1));
}

TEST(s_min_uncond, odd_late_steps_and_early_ones__do_without) {
  const auto on = [](OptionTexts options, double sigma, int64_t step) {
    const Guide guide({{"s_min_uncond", options}, {"cfg"}});
    return guide.branches({.sigma = sigma, .step = step, .steps = 10}).size() == 2;
  };
  EXPECT_TRUE(on({{"s_min_uncond", "3"}}, 3, 1));
  EXPECT_FALSE(on({{"s_min_uncond", "3"}}, 2.9, 1));
  EXPECT_TRUE(on({{"s_min_uncond", "3"}}, 2.9, 2));
  EXPECT_FALSE(on({{"s_min_uncond", "3"}, {"s_min_uncond_all", "true"}}, 2.9, 2));
  EXPECT_FALSE(on({{"skip_early_cond", "0.2"}}, 9, 2));
  EXPECT_TRUE(on({{"skip_early_cond", "0.2"}}, 9, 3));
  EXPECT_TRUE(on({}, 9, 0));
}

TEST(scale_steps, text__gives_each_step_its_scale) {
  const auto scale = [](const std::string& text, int64_t step) {
    const Guide guide({{"scale_steps", {{"scales", text}}}, {"cfg"}});
    return guide.factors({.sigma = 1, .step = step, .steps = 20})->weight(Branch::cond);
  };
  EXPECT_EQ(scale("7x10+1x5", 0), 7);
  EXPECT_EQ(scale("7x10+1x5", 9), 7);
  EXPECT_EQ(scale("7x10+1x5", 10), 1);
  EXPECT_EQ(scale("7x10+1x5", 19), 1);
  EXPECT_EQ(scale("5+4.5x2+3", 1), 4.5);
  expect_error([&] { scale("7x", 0); }, "scale_steps");
  expect_error([&] { scale("7x0", 0); }, "must hold for 1 to 100000 steps (0)");
  expect_error([&] { scale("", 0); }, "scale_steps");
}

TEST(step_at, levels__belong_to_the_step_that_starts_there) {
  const std::vector<double> sigmas = {14, 7, 3, 1, 0};
  const std::vector<std::pair<double, int64_t>> want = {
      {20, 0}, {14, 0}, {10, 0}, {7, 1}, {float{6.9999995F}, 1}, {5, 1}, {1, 3}, {0.5, 3}, {0, 3}};
  for (const auto& [sigma, step] : want) EXPECT_EQ(step_at(sigmas, sigma), step) << sigma;
}

TEST(guidance, wrong_values__are_named) {
  const auto start = [](const std::string& rule, OptionTexts options = {}) {
    Guide({{rule, std::move(options)}});
  };
  expect_error([&] { start("cgf"); }, "did you mean 'cfg'?");
  expect_error([&] { start("cfg", {{"scal", "3"}}); }, "did you mean 'scale'?");
  expect_error(
      [&] {
        start("cfg_rescale", {{"guidance_rescale", "1.5"}});
      },
      "guidance_rescale must lie in [0, 1] (1.5)");
  expect_error([&] { start("cfg_rescale", {{"form", "velocty"}}); }, "did you mean 'velocity'?");
  expect_error(
      [&] {
        start("interval", {{"sigma_lo", "3"}, {"sigma_hi", "2"}});
      },
      "must not be above");
  expect_error([&] { start("mimic", {{"cfg_mode", "Linear Dwn"}}); }, "'linear_down'");
  expect_error([&] { start("apg", {{"base", "papr"}}); }, "'paper'");
  expect_error([&] { guide_once({}, {.shape = {0, 1, 1, 1}}, 1); }, "sizes must be positive");
  expect_error([&] { start("ngns"); }, "'ngms'");
}

TEST(guidance, rules_that_would_do_nothing__are_refused_with_what_works) {
  const auto expect = [](const char* rules, std::string_view part) {
    expect_error([&] { parse_rules(rules); }, part);
  };
  expect("cfg:scale=3;apg:scale=4",
         "guidance: 'cfg' and 'apg' each make the result of the predictions: give one of them");
  expect("cfg;cfg:scale=2", "'cfg' and 'cfg' each make");
  expect("interval:sigma_hi=5",
         "guidance: 'interval' speaks to a rule after it, and none there listens: 'interval;cfg'");
  expect("cfg;interval:sigma_hi=5", "'interval' speaks to a rule after it");
  expect("interval:sigma_hi=5;pag", "'interval' speaks to a rule after it");
  expect("ngms:s_min_uncond=1;cfg_rescale", "'s_min_uncond' speaks to");
  expect("scale_steps:scales=7;fdg", "'scale_steps' speaks to");
  expect("tcfg", "'tcfg' speaks to");
  expect("cfg;tcfg", "'tcfg;cfg' would");
  expect("tcfg;pag", "'tcfg' speaks to");
  expect("cfg_rescale",
         "'cfg_rescale' mends what a rule before it made, and none does: 'cfg;cfg_re");
  expect("cfg_norm;pag", "'cfg_norm' mends");
  expect("rescale_cfg;cfg",
         "'cfg_rescale' does nothing before 'cfg', which makes the result anew: ");
  expect("skip_layers;cfg", "'cfg;skip_layers' works");
  expect("epsilon_scaling;mahiro", "'mahiro;epsilon_scaling' works");
  expect("interval;cfg", "'interval' without options holds back nothing: give it one of sigma_lo");
  for (const char* good :
       {"", "cfg", "pag", "epsilon_scaling", "dynamic_threshold", "pag;cfg_rescale",
        "interval:sigma_hi=5;cfg;cfg_rescale", "interval:sigma_hi=5;autoguidance",
        "interval:sigma_hi=5;s_min_uncond:s_min_uncond=1;scale_steps:scales=7;tcfg;apg;skip_layers",
        " interval : sigma_hi = 5 , sigma_lo = 1 ; cfg : scale = 2 "})
    EXPECT_NO_THROW(parse_rules(good)) << good;
  for (const GuidanceRule* r : all_guidance_rules())
    if (r->kind == RuleKind::combines) {
      EXPECT_NO_THROW(parse_rules("tcfg;" + r->name)) << r->name;
    }
}

// The kinds are derived from behaviour: only rules that combine discard the result before them.
TEST(guidance, kinds__are_what_the_rules_do) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    const auto of = [&](const char* before) {
      return guide_once({{before}, {r->name, always_on(*r)}}, {.shape = shape}, 2.5).result;
    };
    const bool forgets = of("cfg") == of("dynamic_threshold");
    EXPECT_EQ(forgets, r->kind == RuleKind::combines) << r->name;
    const auto alone = guide_once({{r->name, always_on(*r)}}, {.shape = shape}, 2.5);
    const bool alters =
        r->kind == RuleKind::combines || r->kind == RuleKind::adds || r->kind == RuleKind::changes;
    if (r->name == "cfg_norm") continue;  // adds 1e-8 to a norm
    double most = 0;
    for (size_t i = 0; i < alone.result.size(); ++i)
      most = std::max(most, std::abs(alone.result[i] - alone.cond[i]));
    EXPECT_EQ(most > 1e-9, alters) << r->name << " " << most;
  }
}

TEST(guidance, names_of_other_programs__are_known_once) {
  std::map<std::string, int> seen;
  for (const GuidanceRule* r : all_guidance_rules()) {
    ++seen[r->name];
    for (const std::string& alias : r->aliases) {
      ++seen[alias];
      EXPECT_EQ(&find_guidance_rule(alias), r) << alias;
    }
  }
  for (const auto& [name, times] : seen) EXPECT_EQ(times, 1) << name;
  EXPECT_EQ(parse_rules("slg:scale=2;rescale_cfg").size(), 2U);
}

TEST(guidance, help__is_short) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    EXPECT_LE(r->help.size(), 80U) << r->name;
    for (const Option& o : r->options()) {
      EXPECT_FALSE(o.help.empty()) << r->name << " " << o.name;
      EXPECT_LE(o.help.size(), 80U) << r->name << " " << o.name;
    }
  }
}

// ---- the network's own output ----------------------------------------------------------------

// cfg_rescale in form raw, by hand: the deviation of the network's outputs decides.
TEST(output_form, networks__are_those_of_the_preconditioning) {
  const double sigma = 2.5;
  const OptionTexts whole = {{"guidance_rescale", "1"}, {"form", "raw"}};
  const std::vector<std::pair<Prediction, double>> networks = {
      {Prediction::eps, 1},    {Prediction::v, 1},     {Prediction::x0, 1}, {Prediction::edm, 0.5},
      {Prediction::edm, 1.25}, {Prediction::edm_v, 1}, {Prediction::ve, 1}};
  for (const auto& [p, sigma_data] : networks) {
    GuidanceCall call{.shape = {1, 8, 8, 4}, .raw = raw_of(p, sigma_data)};
    const std::vector<RuleCall> cfg = {{"cfg"}}, both = {{"cfg"}, {"cfg_rescale", whole}};
    const auto got = guide_once(both, call, sigma), plain = guide_once(cfg, call, sigma);
    const auto f = precond_factors(p, sigma, sigma_data);
    const auto outputs = [&](const std::vector<double>& d) {
      std::vector<double> out(d);
      const std::vector<double> x = testing::toy_state(call.shape, {});
      for (size_t i = 0; i < d.size(); ++i) out[i] = (d[i] - f.skip * x[i]) / f.out;
      return out;
    };
    EXPECT_NEAR(deviation(outputs(got.result)), deviation(outputs(got.cond)), 1e-12);
    EXPECT_GT(std::abs(deviation(outputs(plain.result)) - deviation(outputs(got.cond))), 1e-3);
  }
}

TEST(guided, predictions_that_are_not_written__are_named) {
  int calls = 0;
  const HostPredict<double> predict = [&](std::span<const double>, double,
                                          std::span<const Branch> branches,
                                          std::span<const std::span<double>> predictions) {
    std::fill(predictions[0].begin(), predictions[0].end(), 1.0);
    if (++calls < 2 && branches.size() > 1)
      std::fill(predictions[1].begin(), predictions[1].end(), 0.5);
  };
  const auto denoise = guided<double>(predict, {{"cfg"}}, {.shape = {1, 1, 1, 3}});
  std::vector<double> x(3), d(3);
  denoise(x, 2, d, {});
  EXPECT_EQ(d[2], 0.5 + 7.5 * 0.5);
  expect_error([&] { denoise(x, 1, d, {}); },
               "guidance: the prediction 'uncond' was not written at sigma 1");
}

// ---- runs ------------------------------------------------------------------------------------

// What apg with momentum makes of the toy predictions at these levels, one evaluation after
// another; `predictions` of each are those of another sample.
struct ApgRun {
  explicit ApgRun(int64_t steps) : steps(steps) {}
  std::vector<double> at(double sigma, int64_t step, int64_t sample) {
    const GuidedShape one{1, 4, 4, 2};
    const std::vector<double> state = testing::toy_state(one, {});
    std::vector<double> result(state.size());
    GuidedSample s{one, 0, result, state, std::vector<std::vector<double>>(branch_count)};
    for (const Branch a : {Branch::cond, Branch::uncond})
      s.predictions[static_cast<size_t>(a)] = testing::toy_values(a, one, {.first_sample = sample});
    guide.apply(s, {.sigma = sigma, .step = step, .steps = steps});
    return result;
  }
  int64_t steps;
  Guide guide{{{"apg", {{"momentum", "-0.5"}}}}};
};

TEST(apg, momentum__lasts_one_run) {
  const std::vector<double> first = ApgRun(1).at(5, 0, 0), second = ApgRun(1).at(5, 0, 1);
  ApgRun one_step(1);  // the runs of two batches
  EXPECT_EQ(one_step.at(5, 0, 0), first);
  EXPECT_EQ(one_step.at(5, 0, 1), second);
  ApgRun rising(4);
  rising.at(5, 0, 2);
  rising.at(3, 1, 0);
  EXPECT_EQ(rising.at(5, 0, 1), second);
  ApgRun restarted(4);
  restarted.at(5, 0, 0);
  restarted.guide.restart();
  EXPECT_EQ(restarted.at(3, 1, 1), second);
}

TEST(apg, momentum__comes_from_evaluations_at_the_same_level_too) {
  ApgRun heun(2);  // the end of a step and the start of the next
  heun.at(5, 0, 0);
  const std::vector<double> end = heun.at(3, 1, 1), start = heun.at(3, 1, 1);
  EXPECT_NE(end, start);
  EXPECT_NE(end, ApgRun(2).at(3, 1, 1));
}

// ---- with a sampler ------------------------------------------------------------------------

TEST(guided, sampler__runs_on_it) {
  const testing::ToyDenoiser c = testing::mixture_denoiser(), u = testing::normal_denoiser(0.5, 1);
  const SampleCall call{.sigmas = testing::karras(6, 0.03, 14.6)};
  const HostPredict<double> predict = [&](std::span<const double> x, double sigma,
                                          std::span<const Branch> branches,
                                          std::span<const std::span<double>> predictions) {
    for (size_t k = 0; k < branches.size(); ++k)
      for (size_t i = 0; i < x.size(); ++i)
        predictions[k][i] = (branches[k] == Branch::cond ? c : u)(x[i], sigma);
  };
  HostLatents<double> latents(
      2, guided<double>(predict, {{"cfg", {{"scale", "3"}}}}, {.shape = {1, 1, 1, 2}}), {});
  const std::vector<double> start = {-6, 3.1};
  const auto x = latents.values(sample("euler", latents, latents.put(start), call));
  const testing::ToyModel by_hand{.denoise = [&](double x, double sigma) {
    return u(x, sigma) + 3 * (c(x, sigma) - u(x, sigma));
  }};
  const auto want = testing::run_toy("euler", start, call, by_hand).x;
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(x[i], want[i], 1e-12);
}

}  // namespace
}  // namespace ebb
