// Levels of folders' schedulers against those of diffusers
// (tools/golden/scheduler_config_golden.py).
#include <gtest/gtest.h>

#include <fstream>

#include "diffusion/levels/schedule.h"
#include "diffusion/precond.h"
#include "diffusion/solver/sampler.h"
#include "pipeline/scheduler_config.h"
#include "support/files.h"
#include "support/golden_file.h"

namespace ebb {
namespace {

using nlohmann::json;
using testing::Folder;

const json& golden() {
  static const json all = testing::read_golden("scheduler_configs");
  return all;
}

SchedulerConfig config_of(const json& values) {
  const Folder folder;
  const std::string file = folder / "scheduler_config.json";
  std::ofstream(file) << values.dump();
  return read_scheduler_config(file);
}

DiffusionConfig diffusion_of(const SchedulerConfig& c) {
  DiffusionConfig out;
  for (const auto& [name, text] : c.diffusion)
    set_field(find_field(fields_of(out), name, "diffusion"), text);
  return out;
}

TEST(scheduler_config, levels__are_those_of_each_scheduler) {
  for (const json& c : golden()["cases"]) {
    const SchedulerConfig config = config_of(golden()["folders"][c["folder"]]);
    const Discretisation levels = Precond(diffusion_of(config)).levels();
    const ScheduleText said = schedule_of(config, c["sampler"]);
    EXPECT_TRUE(said.warnings.empty()) << c["sampler"];
    const std::string what =
        str(c["folder"].get<std::string>(), " ", c["sampler"].get<std::string>(), " ",
            said.schedule, " ", said.options);
    const std::vector<double> got =
        noise_levels(said.schedule, levels,
                     {.steps = c["steps"],
                      .options = parse_options(said.options, said.schedule),
                      .dialect = "diffusers"});
    const bool by_times = c.contains("timesteps");
    const json& want = by_times ? c["timesteps"] : c["sigmas"];
    ASSERT_EQ(got.size(), want.size() + (by_times ? 1 : 0)) << what;
    for (size_t i = 0; i < want.size(); ++i) {
      const double value = by_times ? levels.c_noise_of(got[i]) : got[i];
      const double wanted = want[i];
      EXPECT_NEAR(value, wanted, by_times ? 1e-6 : 2e-5 * wanted) << what << " at " << i;
    }
    if (by_times) {
      EXPECT_EQ(got.back() > 0, c["sigma_min"].get<bool>()) << what;
    }
  }
}

TEST(scheduler_config, sampler__is_that_of_the_class_with_the_options_of_the_file) {
  const auto of = [](const json& more) {
    const SchedulerConfig c = config_of(more);
    std::string out = c.sampler;
    for (const auto& [name, value] : c.sampler_options) out += str(" ", name, "=", value);
    if (!c.sampler.empty()) check_options(c.sampler, c.sampler_options);
    return out;
  };
  const auto class_of = [](const char* name, json more = json::object()) {
    more["_class_name"] = str(name, "Scheduler");
    return more;
  };
  EXPECT_EQ(of(golden()["folders"]["sd1"]), "plms");
  EXPECT_EQ(of(class_of("PNDM")), "pndm");
  EXPECT_EQ(of(class_of("PNDM", {{"skip_prk_steps", false}})), "pndm");
  EXPECT_EQ(of(golden()["folders"]["sdxl"]), "euler");  // it says skip_prk_steps, too
  EXPECT_EQ(of(golden()["folders"]["trailing"]), "ddim");
  EXPECT_EQ(of(golden()["folders"]["lcm"]), "lcm");
  EXPECT_EQ(of(golden()["folders"]["edm"]), "edm_dpm_solver_multistep");
  EXPECT_EQ(of(class_of("DPMSolverMultistep",
                        {{"algorithm_type", "sde-dpmsolver++"}, {"solver_order", 2}})),
            "dpm_solver_multistep solver_order=2 algorithm_type=sde-dpmsolver++");
  EXPECT_EQ(
      of(class_of("UniPCMultistep",
                  {{"solver_order", 3}, {"disable_corrector", {0, 1}}, {"solver_p", nullptr}})),
      "uni_pc variant=bh2 order=3 disable_corrector=[0,1]");
  EXPECT_EQ(of(class_of("DPMSolverSinglestep")), "dpm_solver_singlestep lower_order_final=false");
  EXPECT_EQ(of(class_of("SASolver", {{"predictor_order", 3}, {"tau_func", nullptr}})),
            "sa_solver corrector_order=2 simple_order_2=true from_timestep=800 to_timestep=200 "
            "predictor_order=3");
  EXPECT_EQ(of(class_of("SASolver", {{"algorithm_type", "noise_prediction"}})),
            "sa_solver predictor_order=2 corrector_order=2 from_timestep=800 to_timestep=200 "
            "predict_x0=false simple_order_2=false");
  EXPECT_EQ(of(class_of("Unheard")), "");
}

TEST(scheduler_config, what_sa_solver_does_not_follow__is_warned_of) {
  const json plain = {{"_class_name", "SASolverScheduler"}, {"tau_func", nullptr}};
  EXPECT_EQ(config_of(plain).warnings.size(), 0u);
  json other = plain;
  other["tau_func"] = "mine", other["lower_order_final"] = false;
  const std::vector<std::string> said = config_of(other).warnings;
  ASSERT_EQ(said.size(), 2u);
  EXPECT_EQ(said[0].find("scheduler: tau_func is not followed: noise is renewed in steps from "
                         "timestep 800 to 200"),
            0u);
  EXPECT_EQ(said[1].find("scheduler: lower_order_final is not followed"), 0u);
}

TEST(scheduler_config, sampler_that_diffusers_lacks__is_warned_of) {
  const SchedulerConfig sdxl = config_of(golden()["folders"]["sdxl"]);
  const ScheduleText said = schedule_of(sdxl, "er_sde");
  ASSERT_EQ(said.warnings.size(), 1u);
  EXPECT_EQ(said.warnings[0],
            "scheduler: diffusers has no one for --sampler er_sde; the levels are those of its "
            "Euler; --schedule names others");
  EXPECT_EQ(said.schedule, "leading");
  const SchedulerConfig edm = config_of(golden()["folders"]["edm"]);
  EXPECT_EQ(schedule_of(edm, "uni_pc").warnings.size(), 1u);
  EXPECT_EQ(schedule_of(edm, "dpmpp_2m").schedule, "karras");
}

}  // namespace
}  // namespace ebb
