// Schedules against those of Stable Diffusion web UI, k-diffusion and RES4LYF.
#include <map>

#include "diffusion/levels/schedule.h"
#include "support/golden_lists.h"

namespace ebb::golden_webui_test {
namespace {

using nlohmann::json;
using testing::compare_every_case;
using testing::expect_list;
using testing::ListTolerance;

const Discretisation& sd1() {
  static const Discretisation d = discretisation({});
  return d;
}

bool webui(const json& c) {
  const std::string name = c.at("schedule");
  ScheduleCall call{.steps = c.at("n"), .dialect = "a1111"};
  if (c.at("sdxl").get<bool>()) call.options.emplace_back("model", "sdxl");
  ListTolerance tolerance;
  if (name == "kl_optimal") tolerance.angle = 1.2e-7;
  expect_list(noise_levels(name, sd1(), call), c.at("sigmas"), tolerance);
  return true;
}

bool table(const json& c) {
  const json& sigma = c.at("sigma");
  for (size_t i = 0; i < sigma.size(); ++i) {
    EXPECT_NEAR(sd1().c_noise_of(sigma[i]), c.at("t_at_sigma")[i], 3e-4) << sigma[i];
    EXPECT_EQ(sd1().c_noise_of(sigma[i], true), c.at("t_at_sigma_quantized")[i]) << sigma[i];
  }
  json levels = json::array();
  std::vector<double> got;
  for (const json& t : c.at("t")) got.push_back(sd1().sigma_of_time(t));
  expect_list(got, c.at("sigma_at_t"));
  return true;
}

bool k_diffusion(const json& c) {
  const std::string name = c.at("schedule");
  if (name == "table") return table(c);
  const json& o = c.at("options");
  ScheduleCall call{.steps = c.at("n"), .dialect = "kdiff"};
  call.sigma_min = o.value("sigma_min", 0.0);
  call.sigma_max = o.value("sigma_max", 0.0);
  if (o.contains("rho")) call.options.emplace_back("rho", number_text(o.at("rho")));
  const Discretisation edm = discretisation({.levels = "edm"});
  // vp is the root of exp() - 1 in f32.
  expect_list(noise_levels(name, edm, call), c.at("sigmas"), {.table = name == "vp" ? 6e-8 : 0});
  return true;
}

TEST(golden_schedules, webui_and_k_diffusion__are_the_references) {
  compare_every_case(
      "schedules_webui",
      {{"schedule=align_your_steps sdxl=false source=webui n=1",
        "starts its one step at the smallest level"},
       {"schedule=align_your_steps sdxl=true source=webui n=1",
        "starts its one step at the smallest level"}},
      [](const json& c) { return c.at("source") == "webui" ? webui(c) : k_diffusion(c); });
}

// UniPC's runs take one step more than they have timesteps between, and end at the smallest level.
TEST(golden_schedules, webui_unipc__evaluates_at_the_references_levels) {
  const std::map<std::string, std::string> names = {{"time_uniform", "time_uniform"},
                                                    {"time_quadratic", "time_quadratic"},
                                                    {"logSNR", "log_snr"}};
  const json golden = testing::read_golden("samplers/samplers_webui");
  int compared = 0;
  for (const json& c : golden.at("cases")) {
    if (c.at("sampler") != "unipc" || !c.contains("evaluated")) continue;
    SCOPED_TRACE(testing::case_name(c));
    const std::string skip = c.at("options").at("skip");
    const auto steps = static_cast<int64_t>(c.at("timesteps").size());
    json want = c.at("evaluated");
    want.push_back(sd1().sigmas.front());
    expect_list(noise_levels(names.at(skip), sd1(), {.steps = steps, .dialect = "a1111"}), want);
    ++compared;
  }
  EXPECT_EQ(compared, 27);  // orders above the steps are refused
}

TEST(golden_schedules, res4lyf__are_the_references) {
  compare_every_case("schedules_res4lyf",
                     {{"schedule=bong_tangent n=1 refused", "divides by 0 for one step"}},
                     [](const json& c) {
                       ScheduleCall call{.steps = c.at("n"), .options = {{"scaled", "false"}}};
                       for (const auto& [key, value] : c.at("options").items())
                         call.options.emplace_back(key, number_text(value));
                       expect_list(noise_levels("bong_tangent", sd1(), call), c.at("sigmas"));
                       return true;
                     });
}

}  // namespace
}  // namespace ebb::golden_webui_test
