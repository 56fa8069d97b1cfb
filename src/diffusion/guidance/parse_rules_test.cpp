// Rules as text, and what they say of themselves before they run.
#include <gtest/gtest.h>

#include <set>

#include "diffusion/guidance/guide.h"
#include "support/files.h"

namespace ebb {
namespace {

using testing::expect_error;

const GuidedShape rules_shape{2, 8, 8, 4};

TEST(guidance, empty_rules__are_refused) {
  const auto expect = [](const char* rules, std::string_view error) {
    expect_error([&] { parse_rules(rules); }, error);
  };
  expect("cfg;", "guidance: a rule has no name  got 'cfg;'");
  expect(";cfg", "guidance: a rule has no name  got ';cfg'");
  expect("cfg;;cfg_rescale", "a rule has no name");
  expect(":scale=2", "a rule has no name");
  expect("cfg:", "guidance: no option follows the colon of 'cfg:'");
  expect("cfg:,", "cfg: no option follows the last comma  got ','");
  expect("cfg:scale=2,", "cfg: no option follows the last comma  got 'scale=2,'");
  expect("cfg:,scale=2", "cfg: no option stands before a comma  got ',scale=2'");
}

TEST(guidance, scale_that_another_rule_tells__is_refused) {
  expect_error([] { parse_rules("scale_steps:scales=7x10;cfg:scale=3"); },
               "guidance: 'scale_steps' tells 'cfg' its scale: leave out one of them (scale=3)");
  expect_error([] { parse_rules("scale_steps:scales=7;apg:eta=0,scale=3"); }, "tells 'apg'");
  EXPECT_NO_THROW(parse_rules("scale_steps:scales=7;apg:eta=0;skip_layers:scale=2"));
  expect_error([] { parse_rules("scale_steps:scales=7x3+nan;cfg"); }, "must be finite (nan)");
}

TEST(guidance, names__may_have_any_case) {
  EXPECT_EQ(find_guidance_rule("CFG-Zero*").name, "cfg_zero");
  expect_error([] { parse_rules("CGF"); }, "did you mean 'cfg'?");
}

// The branches that a network must provide are known in advance.
TEST(guidance, extra_branches__are_those_that_rules_need) {
  for (const GuidanceRule* r : all_guidance_rules()) {
    std::set<Branch> asked;
    const Guide guide({{r->name}});
    for (int64_t step = 0; step < 100; ++step)
      for (const Branch a : guide.branches(
               {.sigma = 10 - 0.1 * static_cast<double>(step), .step = step, .steps = 100}))
        if (a != Branch::cond && a != Branch::uncond) asked.insert(a);
    EXPECT_EQ(asked, std::set<Branch>(r->extra.begin(), r->extra.end())) << r->name;
  }
  EXPECT_NO_THROW(check_branches(parse_rules("interval:sigma_hi=5;cfg;epsilon_scaling")));
  expect_error(
      [] { check_branches(parse_rules("cfg;skip_layers:sigma_hi=0.01")); },
      "guidance: 'skip_layers' needs a prediction that this network does not provide: skip");
}

TEST(guidance, effect__is_searched_in_the_full_run) {
  const GuidanceCall run{.shape = rules_shape, .sigmas = {80, 10, 1, 0}};
  const auto acts = [&](const char* rules) { return has_effect(parse_rules(rules), run); };
  for (const char* idle :
       {"", "cfg:scale=1", "interval:sigma_lo=1000;cfg", "interval:sigma_hi=0;cfg",
        "interval:start=0.9,stop=0.95;cfg", "interval:sigma_lo=80;cfg;cfg_rescale",
        "interval:sigma_lo=90,sigma_hi=100;cfg", "interval:sigma_lo=5,sigma_hi=5;cfg",
        "epsilon_scaling:scaling_factor=1", "cfg:scale=1;epsilon_scaling:scaling_factor=1",
        "cfg:scale=1;cfg_norm", "scale_steps:scales=1;cfg",
        "s_min_uncond:s_min_uncond=90,s_min_uncond_all=1;cfg"})
    EXPECT_FALSE(acts(idle)) << idle;
  for (const char* works :
       {"cfg:scale=2", "interval:sigma_lo=75;cfg", "epsilon_scaling", "interval:sigma_hi=0.5;cfg",
        "dynamic_threshold", "interval:sigma_lo=2,sigma_hi=8;cfg", "scale_steps:scales=1x2+3;cfg",
        // a rule that changes any result has an effect next to one that needs the condition only
        "cfg:scale=1;epsilon_scaling", "interval:sigma_lo=1000;cfg;epsilon_scaling",
        "cfg:scale=1;dynamic_threshold", "cfg:scale=1;cfg_norm:strength=2"})
    EXPECT_TRUE(acts(works)) << works;
}

TEST(guidance, effect_above_the_first_level__is_found_where_a_sampler_goes) {
  const GuidanceCall run{.shape = rules_shape, .sigmas = {80, 10, 1, 0}};
  const auto rules = parse_rules("interval:sigma_lo=90,sigma_hi=100;cfg");
  EXPECT_FALSE(has_effect(rules, run, 85));
  EXPECT_TRUE(has_effect(rules, run, 95));
  EXPECT_TRUE(has_effect(rules, run, 200));
}

// Samplers choose where between two levels they evaluate.
TEST(guidance, effect_in_a_narrow_range__is_found) {
  const GuidanceCall run{.shape = rules_shape, .sigmas = {80, 10, 1, 0}};
  const auto acts = [&](const char* rules) { return has_effect(parse_rules(rules), run); };
  for (const char* works :
       {"interval:sigma_lo=4,sigma_hi=4.5;cfg", "interval:sigma_lo=30,sigma_hi=30.000001;cfg",
        "interval:sigma_hi=1e-6;cfg", "interval:sigma_lo=79.99;cfg",
        "interval:sigma_lo=5,sigma_hi=5,sigma_lo_included=1;cfg",
        "cfg:scale=1;pag:sigma_lo=4,sigma_hi=4.5", "cfg:scale=1;autoguidance:sigma_hi=1e-6",
        "s_min_uncond:s_min_uncond=79.99,s_min_uncond_all=1;cfg"})
    EXPECT_TRUE(acts(works)) << works;
  EXPECT_FALSE(acts("interval:sigma_lo=4,sigma_hi=4.5,stop=0.3;cfg"));  // that is in step 1
}

}  // namespace
}  // namespace ebb
