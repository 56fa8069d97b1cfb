// Schedules, timesteps and tables against those of diffusers.
#include <algorithm>
#include <map>

#include "diffusion/levels/schedule.h"
#include "support/golden_lists.h"

namespace ebb::golden_diffusers_test {
namespace {

using nlohmann::json;
using testing::compare_every_case;
using testing::expect_list;
using testing::ListTolerance;

// 1 - alpha_bar in f32 has few digits where alpha_bar is near 1, and alpha_bar few near 0.
constexpr ListTolerance of_f32_table{.table = 1.5e-6};

bool has(const json& config, const std::string& key) {
  return config.contains(key) && config.at(key) != false;
}

Discretisation levels_of(const json& config) {
  const bool zero = has(config, "rescale_betas_zero_snr");
  return discretisation({.zero_snr = zero ? "diffusers" : "no"});
}

std::string spread_of(const json& config) {
  for (const char* name : {"karras", "exponential", "beta"})
    if (has(config, str("use_", name, "_sigmas"))) return name;
  return "none";
}

// diffusers_timesteps with the options of a configuration.
struct Spaced {
  std::string usual_spacing = "linspace";
  bool integer = true, skip_last = false;
};
std::vector<double> spaced_levels(const json& c, const Spaced& by) {
  const json& config = c.at("config");
  const OptionTexts options = {{"spacing", config.value("timestep_spacing", by.usual_spacing)},
                               {"offset", str(config.value("steps_offset", 0))},
                               {"skip_last", by.skip_last ? "true" : "false"},
                               {"integer", by.integer ? "true" : "false"},
                               {"last", config.value("final_sigmas_type", std::string("zero"))},
                               {"spread", spread_of(config)}};
  return noise_levels("diffusers_timesteps", levels_of(config),
                      {.steps = c.at("n"), .options = options, .dialect = "diffusers"});
}

// ---- by scheduler --------------------------------------------------------------------------

bool euler(const json& c) {
  expect_list(spaced_levels(c, {.integer = false}), c.at("sigmas"), of_f32_table);
  return true;
}

// All but the ends of Heun's list come twice, for its two evaluations.
bool heun(const json& c) {
  json once = c.at("sigmas");
  once.erase(std::unique(once.begin(), once.end()), once.end());
  expect_list(spaced_levels(c, {.integer = false}), once, of_f32_table);
  return true;
}

// n + 1 times, the last of which is left out: of UniPC from 1 to 0.001, its first level being 1e-6
// smaller; of the others from 0.999 to 0.
bool on_flow(const json& c) {
  const double n = c.at("n");
  const bool unipc = c.at("scheduler") == "UniPCMultistepScheduler";
  ScheduleCall call{.steps = c.at("n"), .dialect = "diffusers"};
  if (!unipc) call.options = {{"first_time", "0.999"}};
  if (unipc && n > 1) call.options = {{"last_time", number_text(1 - 0.999 * (n - 1) / n)}};
  json want = c.at("sigmas");
  // DEIS repeats the last level, where others end at 0.
  if (c.at("scheduler") == "DEISMultistepScheduler") want.back() = 0;
  const double shift = c.at("config").at("flow_shift");
  expect_list(noise_levels("flow", discretisation({.levels = "flow", .shift = shift}), call), want);
  return true;
}

bool dpm_solver(const json& c) {
  const json& config = c.at("config");
  const ScheduleCall call{.steps = c.at("n"), .dialect = "diffusers"};
  if (has(config, "use_flow_sigmas")) return on_flow(c);
  static const std::map<std::string, std::string> spread = {
      {"use_karras_sigmas", "karras"},
      {"use_exponential_sigmas", "exponential"},
      {"use_lu_lambdas", "exponential"},
      {"use_beta_sigmas", "beta"}};
  for (const auto& [key, schedule] : spread) {
    if (!has(config, key)) continue;
    expect_list(noise_levels(schedule, levels_of(config), call), c.at("sigmas"), of_f32_table);
    return true;
  }
  expect_list(spaced_levels(c, {.skip_last = true}), c.at("sigmas"), of_f32_table);
  return true;
}

// The network's timesteps at our levels.
void expect_timesteps(const std::vector<double>& levels, const json& want) {
  ASSERT_EQ(levels.size(), want.size() + 1);
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(discretisation({}).c_noise_of(levels[i]), want[i], 1e-6) << "timestep " << i;
}

bool by_timesteps(const json& c) {
  expect_timesteps(spaced_levels(c, {.usual_spacing = "leading"}), c.at("timesteps"));
  return true;
}

// PLMS evaluates the second level twice; the Runge-Kutta steps also half way between levels.
bool pndm(const json& c) {
  json once = json::array();
  const int64_t n = c.at("n"), stride = 1000 / n;
  const auto offset = static_cast<double>(c.at("config").value("steps_offset", 0));
  for (const json& t : c.at("timesteps")) {
    const auto within = std::fmod(t.get<double>() - offset, static_cast<double>(stride));
    if (within == 0 && (once.empty() || t != once.back())) once.push_back(t);
  }
  json distinct = json::array();
  for (const json& t : once)
    if (std::find(distinct.begin(), distinct.end(), t) == distinct.end()) distinct.push_back(t);
  expect_timesteps(spaced_levels(c, {.usual_spacing = "leading"}), distinct);
  return true;
}

bool consistency(const json& c) {
  expect_timesteps(
      noise_levels("lcm", discretisation({}), {.steps = c.at("n"), .dialect = "diffusers"}),
      c.at("timesteps"));
  return true;
}

bool edm(const json& c) {
  const bool cosine = c.at("scheduler") == "CosineDPMSolverMultistepScheduler";
  const Discretisation d = discretisation(
      {.levels = "edm", .sigma_min = cosine ? 0.3 : 0.002, .sigma_max = cosine ? 500.0 : 80.0});
  const std::string usual = cosine ? "exponential" : "karras";
  expect_list(noise_levels(c.at("config").value("sigma_schedule", usual), d,
                           {.steps = c.at("n"), .dialect = "diffusers"}),
              c.at("sigmas"));
  return true;
}

bool by_scheduler(const json& c) {
  static const std::map<std::string, bool (*)(const json&)> all = {
      {"EulerDiscreteScheduler", euler},
      {"LMSDiscreteScheduler", euler},
      {"HeunDiscreteScheduler", heun},
      {"DPMSolverMultistepScheduler", dpm_solver},
      {"UniPCMultistepScheduler", dpm_solver},
      {"DEISMultistepScheduler", dpm_solver},
      {"DDIMScheduler", by_timesteps},
      {"DDPMScheduler", by_timesteps},
      {"PNDMScheduler", pndm},
      {"LCMScheduler", consistency},
      {"TCDScheduler", consistency},
      {"EDMEulerScheduler", edm},
      {"CosineDPMSolverMultistepScheduler", edm}};
  const auto found = all.find(c.at("scheduler"));
  return found != all.end() && found->second(c);
}

// ---- other kinds ---------------------------------------------------------------------------

// FlowMatchEuler: with the times that pipelines give it, or its own, which are spread between the
// network's first and last level as if those were times.
bool flow_match(const json& c) {
  const json& config = c.at("config");
  const double static_shift = config.value("shift", 1.0);
  double shift = static_shift;
  if (config.contains("mu")) {
    const double mu = config.at("mu");
    shift =
        config.value("time_shift_type", std::string("exponential")) == "linear" ? mu : std::exp(mu);
  }
  ScheduleCall call{.steps = c.at("n"), .dialect = "diffusers"};
  call.options = {{"shift", number_text(shift)}, {"spread", spread_of(config)}};
  if (config.contains("shift_terminal"))
    call.options.emplace_back("terminal", number_text(config.at("shift_terminal")));
  if (c.at("given").is_null())
    call.options.emplace_back("last_time", number_text(shifted(0.001, static_shift)));
  const Discretisation d = discretisation({.levels = "flow", .shift = shift});
  std::vector<double> got = noise_levels("flow", d, call);
  if (has(config, "invert_sigmas"))  // time the other way round
    for (double& s : got) s = 1 - s;
  expect_list(got, c.at("sigmas"));
  const bool plain = call.options.size() == 3 && spread_of(config) == "none";
  if (c.at("given").is_null() && plain && config.contains("shift") && shift > 1 &&
      !has(config, "invert_sigmas"))
    expect_list(noise_levels("normal", d, {.steps = call.steps, .dialect = "diffusers"}),
                c.at("sigmas"));
  return true;
}

bool published_list(const json& c) {
  const std::string table = c.at("table");
  const std::string model = table.find("XL") != std::string::npos      ? "sdxl"
                            : table.find("Video") != std::string::npos ? "svd"
                                                                       : "sd1";
  const bool timesteps = table.find("Timesteps") != std::string::npos;
  const Discretisation d =
      model == "svd" ? discretisation({.levels = "edm", .sigma_max = 700}) : discretisation({});
  ScheduleCall call{.steps = 10,
                    .options = {{"model", model + (timesteps ? "_timesteps" : "")}},
                    .dialect = "diffusers"};
  if (!timesteps && model != "svd") call.options.emplace_back("rounded", "true");
  const std::vector<double> got = noise_levels("align_your_steps", d, call);
  if (timesteps) expect_timesteps(got, c.at("timesteps"));
  expect_list(got, c.at("sigmas"), of_f32_table);
  return true;
}

// alphas_cumprod is a product of 1000 numbers in f32.
bool table(const json& c) {
  const std::string name = c.at("beta_schedule");
  BetaTable t = beta_table(
      name == "squaredcos_cap_v2" ? "cosine" : name, 1000,
      name == "squaredcos_cap_v2" ? BetaEnds{} : BetaEnds{c.at("beta_start"), c.at("beta_end")});
  if (c.at("zero_snr").get<bool>()) t = without_last_signal(t, std::ldexp(1, -24));
  for (size_t i = 0; i < c.at("index").size(); ++i) {
    const double want = c.at("alphas_cumprod")[i];
    EXPECT_NEAR(t.alpha_bar[c.at("index")[i].get<size_t>()], want, 2e-5 * want + 1e-7) << i;
  }
  return true;
}

const std::vector<testing::Excuse> excuses = {
    {"PNDMScheduler n=1 refused", "needs three levels"},
    {"PNDMScheduler n=2 refused", "needs three levels"},
    {"PNDMScheduler n=3 refused", "needs three levels"},
    {"LCMScheduler n=150 refused", "more steps than the 50 of the distillation"},
    {"TCDScheduler n=150 refused", "more steps than the 50 of the distillation"},
    {"sigma_schedule=exponential kind=schedule scheduler=EDMEulerScheduler n=1",
     "starts its one step at the smallest level"},
    {"kind=schedule scheduler=CosineDPMSolverMultistepScheduler n=1",
     "starts its one step at the smallest level"},
    {"FlowMatchEulerDiscreteScheduler n=1 nan", "its one level, 1, is stretched"},
};

TEST(golden_schedules, diffusers__are_the_references) {
  compare_every_case("schedules_diffusers", excuses, [](const json& c) {
    const std::string kind = c.at("kind");
    if (kind == "schedule") return by_scheduler(c);
    if (kind == "flow") return flow_match(c);
    if (kind == "ays") return published_list(c);
    return kind == "table" && table(c);
  });
}

}  // namespace
}  // namespace ebb::golden_diffusers_test
