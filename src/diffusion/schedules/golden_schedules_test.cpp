// Schedules, levels and preconditioning against lists of the reference programs.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "diffusion/levels/schedule.h"
#include "support/golden_file.h"

namespace ebb::golden_schedules_test {
namespace {

using nlohmann::json;

const json& comfy() {
  static const json j = testing::read_golden("samplers/schedules_comfyui");
  return j;
}

const Discretisation& model(const std::string& name) {
  static const std::map<std::string, Discretisation> models = {
      {"sd1", discretisation({})},
      {"zsnr", discretisation({.zero_snr = "comfy"})},
      {"flow3", discretisation({.levels = "flow", .shift = 3})},
      {"flow1", discretisation({.levels = "flow"})},
      {"flux115", flow_levels({.shift = std::exp(1.15), .multiplier = 1, .count = 10000})},
      {"edm80", discretisation({.levels = "edm"})},
      {"svd", discretisation({.levels = "edm", .sigma_max = 700})},
      {"cascade", discretisation({.levels = "cascade"})},
      {"cosmos", discretisation({.levels = "rflow"})},
  };
  return models.at(name);
}

// The references calculate in float32; kl_optimal in angles, whose rounding the tangent magnifies
// by 1 + level^2.
void expect_list(const std::vector<double>& got, const json& want, const std::string& what) {
  const double angle_rounding = what.starts_with("kl_optimal") ? 1.2e-7 : 0;
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const double w = want[i];
    EXPECT_NEAR(got[i], w, 3e-6 * std::abs(w) + 1e-7 + angle_rounding * (1 + w * w))
        << what << " level " << i;
  }
}

TEST(golden_schedules, comfyui_by_name__are_the_references) {
  for (const auto& c : comfy().at("cases")) {
    if (c.at("kind") != "schedule" || !c.contains("sigmas")) continue;
    if (c.at("sigmas")[0].is_string()) continue;  // kl_optimal of one step is not a number there
    const std::string name = c.at("schedule");
    const ScheduleCall call{.steps = c.at("n"), .dialect = "comfy"};
    expect_list(noise_levels(name, model(c.at("model")), call), c.at("sigmas"),
                str(name, ' ', c.at("model"), ' ', call.steps));
  }
}

TEST(golden_schedules, comfyui_ksampler__are_the_references) {
  for (const auto& c : comfy().at("cases")) {
    if (c.at("kind") != "ksampler" || !c.contains("sigmas")) continue;
    ScheduleCall call{.steps = c.at("n"), .dialect = "comfy", .denoise = c.at("denoise")};
    const auto& list = find_dialect("comfy").discard_penultimate;
    call.discard_penultimate =
        std::find(list.begin(), list.end(), c.at("sampler").get<std::string>()) != list.end();
    expect_list(noise_levels(c.at("schedule").get<std::string>(), model(c.at("model")), call),
                c.at("sigmas"), c.dump());
  }
}

// Our schedule and its options for a node of the reference.
struct Node {
  std::string schedule;
  ScheduleCall call;
  std::string model = "edm80";
};

Node node_of(const json& c) {
  const std::string name = c.at("schedule");
  const json& o = c.at("options");
  Node n{.schedule = "", .call = {.steps = c.at("n"), .dialect = "comfy"}};
  const auto option = [&](const char* theirs, const char* ours) {
    if (o.contains(theirs)) n.call.options.emplace_back(ours, number_text(o.at(theirs)));
  };
  if (o.contains("sigma_max")) n.call.sigma_max = o.at("sigma_max");
  if (o.contains("sigma_min")) n.call.sigma_min = o.at("sigma_min");
  if (o.contains("denoise")) n.call.denoise = o.at("denoise");
  if (o.contains("model")) n.model = o.at("model").get<std::string>();
  static const std::map<std::string, std::string> names = {
      {"KarrasScheduler", "karras"},
      {"ExponentialScheduler", "exponential"},
      {"PolyexponentialScheduler", "polyexponential"},
      {"LaplaceScheduler", "laplace"},
      {"VPScheduler", "vp"},
      {"SDTurboScheduler", "turbo"},
      {"BetaSamplingScheduler", "beta"},
      {"AlignYourStepsScheduler", "align_your_steps"},
      {"GITSScheduler", "gits"},
      {"OptimalStepsScheduler", "optimal_steps"},
      {"Flux2Scheduler", "flux2"},
      {"LTXVScheduler", "ltx2"}};
  n.schedule = names.at(name);
  option("rho", "rho");
  option("mu", "mu");
  option("alpha", "alpha");
  if (name != "VPScheduler") option("beta", "beta");
  option("coeff", "coefficient");
  if (o.contains("model_type")) {
    std::string type = o.at("model_type");
    for (char& ch : type) ch = static_cast<char>(std::tolower(ch));
    n.call.options.emplace_back("model", type);
  }
  if (o.contains("stretch"))
    n.call.options.emplace_back("stretch", o.at("stretch").get<bool>() ? "true" : "false");
  if (o.contains("width"))
    n.call.options.emplace_back(
        "tokens", number_text(o.at("width").get<double>() * o.at("height").get<double>() / 256));
  if (name == "OptimalStepsScheduler" || name == "Flux2Scheduler" || name == "LTXVScheduler")
    n.model = "flow3";
  if (name == "GITSScheduler" || name == "AlignYourStepsScheduler") n.model = "edm80";
  return n;
}

TEST(golden_schedules, comfyui_nodes__are_the_references) {
  for (const auto& c : comfy().at("cases")) {
    if (c.at("kind") != "node" || !c.contains("sigmas")) continue;
    const Node n = node_of(c);
    // The reference takes one step from the last levels of its list for 20.
    if (n.schedule == "gits" && n.call.steps == 1) continue;
    // One level, 1, is stretched to 0.1 by what rounding left of it.
    if (n.schedule == "ltx2" && n.call.steps == 1) continue;
    expect_list(noise_levels(n.schedule, model(n.model), n.call), c.at("sigmas"),
                c.dump().substr(0, 120));
  }
}

TEST(golden_levels, comfyui_tables__are_the_references) {
  for (const auto& c : comfy().at("cases")) {
    if (c.at("kind") != "table") continue;
    const std::string name = c.at("model");
    const Discretisation& d = model(name);
    EXPECT_EQ(static_cast<int64_t>(d.sigmas.size()), c.at("length").get<int64_t>());
    const auto near = [&](double got, double want, const std::string& what) {
      // float32, and 1 - alpha_bar of it.
      const double digits = name == "cascade" ? 2e-4 : 2e-5;
      EXPECT_NEAR(got, want, digits * std::abs(want) + 3e-6) << name << ' ' << what;
    };
    for (size_t i = 0; i < c.at("index").size(); ++i)
      near(d.sigmas[c.at("index")[i].get<size_t>()], c.at("sigma_at_index")[i], "index");
    if (c.contains("sigma_at_t"))
      for (size_t i = 0; i < c.at("t").size(); ++i)
        near(d.sigma_of_time(c.at("t")[i]), c.at("sigma_at_t")[i], str("t ", c.at("t")[i]));
    if (c.contains("t_at_sigma"))
      for (size_t i = 0; i < c.at("sigma").size(); ++i)
        near(d.c_noise_of(c.at("sigma")[i], true), c.at("t_at_sigma")[i],
             str("sigma ", c.at("sigma")[i]));
    if (c.contains("sigma_at_percent"))
      for (size_t i = 0; i < c.at("percent").size(); ++i)
        near(d.at_percent(c.at("percent")[i]), c.at("sigma_at_percent")[i],
             str("percent ", c.at("percent")[i]));
  }
}

TEST(golden_precond, comfyui__is_the_references) {
  const std::map<std::string, Prediction> names = {
      {"EPS", Prediction::eps}, {"V_PREDICTION", Prediction::edm_v},
      {"EDM", Prediction::edm}, {"CONST", Prediction::flow},
      {"X0", Prediction::x0},   {"COSMOS_RFLOW", Prediction::rflow}};
  for (const auto& c : comfy().at("cases")) {
    if (c.at("kind") != "preconditioning") continue;
    const std::string name = c.at("prediction");
    const double x = c.at("x"), sigma = c.at("sigma"), d = c.at("sigma_data");
    if ((name == "EPS" || name == "X0") && d != 1) continue;
    const auto f = precond_factors(names.at(name), sigma, d);
    EXPECT_NEAR(f.skip * x + f.out * c.at("output").get<double>(), c.at("denoised"), 2e-6) << c;
    EXPECT_NEAR(f.in * x, c.at("input"), 2e-6) << c;
  }
}

}  // namespace
}  // namespace ebb::golden_schedules_test
