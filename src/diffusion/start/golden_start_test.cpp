// Start rules against the programs that people know: tests/golden/samplers/start_rules.json. Every
// case is compared, or excused by a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "diffusion/levels/schedule.h"
#include "diffusion/start/refiner.h"
#include "diffusion/start/strength.h"
#include "support/golden_file.h"

namespace ebb::golden_start_test {
namespace {

using nlohmann::json;

const json& golden_file() {
  static const json file = testing::read_golden("samplers/start_rules");
  return file;
}

// What no rule of ours does, with the reason.
std::string different(const json& c) {
  if (c["source"] == "webui" && c["fix_steps"] == true && c["strength"] == 0.0)
    return "the webui makes a list of 0 steps and cannot run it; ours runs one step";
  return "";
}

// ---- the webui -------------------------------------------------------------------------------

void expect_webui(const json& c) {
  const StartPlan plan = plan_strength("a1111", c["steps"], c["strength"],
                                       {.exact_steps = c["fix_steps"].get<bool>()});
  const int64_t list = c["schedule_steps"], t_enc = c["t_enc"];
  EXPECT_EQ(plan.steps, list);
  EXPECT_EQ(plan.run, t_enc + 1);
  EXPECT_EQ(plan.first, list - t_enc - 1);
}

// ---- diffusers -------------------------------------------------------------------------------

// A scheduler's timesteps, one a step, falling: those of the case of its whole run.
using Runs = std::map<std::string, std::vector<double>>;

bool twice_a_step(const json& c) { return c["scheduler"] == "HeunDiscreteScheduler"; }

std::string run_of(const json& c) {
  return c["pipeline"].get<std::string>() + c["scheduler"].get<std::string>() + c["steps"].dump();
}

Runs full_runs() {
  Runs out;
  for (const json& c : golden_file()["cases"]) {
    if (c["source"] != "diffusers" || c.value("strength", 0.0) != 1.0) continue;
    std::vector<double>& steps = out[run_of(c)];
    const std::vector<double> all = c["timesteps"];
    for (size_t i = 0; i < all.size(); ++i)
      if (!twice_a_step(c) || i % 2 == 0) steps.push_back(all[i]);
    if (twice_a_step(c)) {  // the step's own, then the next one's
      for (size_t i = 2; i < all.size(); i += 2) EXPECT_EQ(all[i - 1], all[i]);
    }
  }
  return out;
}

// The timesteps of the evaluations from step `first` on.
std::vector<double> evaluated(const json& c, const std::vector<double>& steps, int64_t first) {
  std::vector<double> out;
  for (auto i = static_cast<size_t>(first); i < steps.size(); ++i) {
    out.push_back(steps[i]);
    if (twice_a_step(c) && i + 1 < steps.size()) out.push_back(steps[i + 1]);
  }
  return out;
}

void expect_diffusers(const json& c, const Runs& runs) {
  const std::vector<double>& steps = runs.at(run_of(c));
  const int64_t count = c["steps"];
  ASSERT_EQ(static_cast<int64_t>(steps.size()), count);
  if (c.contains("denoising_start")) {
    int64_t first = switch_below(steps, timestep_cutoff(c["denoising_start"]));
    // With two evaluations a step diffusers starts with the step whose end is below the cutoff; the
    // first network stops in the middle of that step.
    if (twice_a_step(c)) first = std::max<int64_t>(first - 1, 0);
    EXPECT_EQ(evaluated(c, steps, first), c["timesteps"].get<std::vector<double>>());
    return;
  }
  const bool flow = c["pipeline"] == "sd3" || c["pipeline"] == "flux";
  const StartPlan plan =
      plan_strength("diffusers", count, c["strength"], {.space = flow ? Space::flow : Space::ve});
  EXPECT_EQ(plan.steps, count);
  EXPECT_EQ(plan.run, c["used_steps"].get<int64_t>());
  EXPECT_EQ(evaluated(c, steps, plan.first), c["timesteps"].get<std::vector<double>>());
}

// ---- ComfyUI ---------------------------------------------------------------------------------

void expect_comfyui(const json& c) {
  const StartPlan plan = plan_strength("comfy", c["steps"], c["denoise"]);
  const std::vector<double> list =
      noise_levels(c["schedule"].get<std::string>(), discretisation({}),
                   {.steps = plan.steps, .dialect = "comfy"});
  Stretch part{.finish = c["force_full_denoise"].get<bool>()};
  if (!c["start_step"].is_null()) part.first = c["start_step"];
  if (!c["last_step"].is_null()) part.last = c["last_step"].get<int64_t>();
  const std::vector<double> got = stretch_of(planned_levels(list, plan), part);
  if (c["sigmas"].is_null()) {  // the latent comes back as it is
    EXPECT_EQ(got.size(), 1U);
    return;
  }
  const std::vector<double> want = c["sigmas"];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-6 * want[i]) << i;  // a list made in f32
}

// ----------------------------------------------------------------------------------------------

TEST(golden_start, every_case__is_that_of_the_reference) {
  const Runs runs = full_runs();
  const std::map<std::string, std::function<void(const json&)>> sources = {
      {"webui", expect_webui},
      {"diffusers", [&](const json& c) { expect_diffusers(c, runs); }},
      {"comfyui", expect_comfyui}};
  std::map<std::string, int> compared, excused;
  for (const json& c : golden_file()["cases"]) {
    SCOPED_TRACE(c.dump());
    if (const std::string reason = different(c); !reason.empty()) {
      ++excused[reason];
      continue;
    }
    const std::string source = c["source"];
    ASSERT_TRUE(sources.contains(source)) << "nothing compares this source";
    sources.at(source)(c);
    ++compared[source];
  }
  EXPECT_EQ(compared,
            (std::map<std::string, int>{{"comfyui", 14}, {"diffusers", 240}, {"webui", 65}}));
  EXPECT_EQ(excused.size(), 1U);
  EXPECT_EQ(excused.begin()->second, 5);
}

}  // namespace
}  // namespace ebb::golden_start_test
