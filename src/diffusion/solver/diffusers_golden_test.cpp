// Trajectories of diffusers' schedulers on the mixture, as they computed them (tools/golden).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "diffusion/solver/diffusers_schedulers.h"
#include "diffusion/solver/timesteps.h"
#include "support/golden_file.h"
#include "support/toy_data.h"

namespace ebb::diffusers_golden_test {
namespace {

using nlohmann::json;

// Those that end at the level of timestep 0, unless a case says else.
bool ends_at_zero(const std::string& scheduler) {
  static const std::set<std::string> others = {"PNDMScheduler", "TCDScheduler",
                                               "DEISMultistepScheduler", "SASolverScheduler"};
  return !others.contains(scheduler);
}

// Cases that our samplers do not promise: why.
std::string excuse(const json& c) {
  const json& config = c["config"];
  const std::string name = c["scheduler"];
  if (c.contains("error")) return "the reference fails";
  if (!c["x"][0].is_number()) return "the reference gives NaN";
  if (config.value("clip_sample", false)) return "D is clipped by the denoiser, not by samplers";
  if ((name == "DDIMScheduler" || name == "DDPMScheduler") &&
      config.value("timestep_spacing", "") == "trailing")
    return "a step ends one timestep beside the next one's start";
  if (name == "PNDMScheduler" && config.contains("prediction_type"))
    return "it remembers v, which mixes x and noise in other shares at every level";
  if (config.contains("step") && config["step"].contains("s_churn"))
    return "noise is renewed after the evaluation, not before";
  return "";
}

struct Golden {
  std::string sampler;
  SampleCall call;
  std::vector<double> start, want;
  double start_scale = 1, end_scale = 1;  // of our states in the scheduler's coordinates
};

std::string text_of(const json& v) { return v.is_string() ? v.get<std::string>() : v.dump(); }

void read_options(const json& c, const DiffusersScheduler& s, Golden& g) {
  const json& config = c["config"];
  const auto meant = s.meant_by([&](std::string_view field) -> std::optional<std::string> {
    if (!config.contains(field)) return {};
    return text_of(config[field]);
  });
  g.sampler = meant.sampler;
  g.call.options = meant.options;
  const json step = config.value("step", json::object());
  for (const char* name : {"eta", "s_churn", "s_noise", "order"})
    if (step.contains(name)) g.call.options.emplace_back(name, text_of(step[name]));
}

// The levels of the steps, from those of the evaluations. Of pndm's first three steps these are the
// start, twice half way, and the end; of two a step the second lies between levels.
std::vector<double> levels(const json& c, const std::string& sampler) {
  const bool twice = sampler.starts_with("dpm_2") || sampler == "dpmpp_sde";
  const size_t stages = sampler == "pndm" ? 4 : twice ? 2 : 1;
  const size_t staged = sampler == "pndm" ? 12 : c["sigmas"].size();
  std::vector<double> out;
  for (size_t i = 0; i < c["sigmas"].size(); ++i)
    if (i >= staged || i % stages == 0) out.push_back(c["sigmas"][i]);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Golden golden(const json& c) {
  const std::string name = c["scheduler"];
  const DiffusersScheduler& s = *find_diffusers_scheduler(name);
  const json& config = c["config"];
  Golden g;
  read_options(c, s, g);
  const bool vp = c["space"] == "vp";
  std::vector<double>& sigmas = g.call.sigmas = levels(c, g.sampler);
  bool zero = ends_at_zero(name);
  if (config.contains("final_sigmas_type")) zero = config["final_sigmas_type"] == "zero";
  if (config.contains("set_alpha_to_one")) zero = config["set_alpha_to_one"];
  // Of these the dialect ends at timestep 0 by itself.
  const bool by_dialect = g.sampler == "plms" || g.sampler == "pndm" || g.sampler == "tcd";
  const bool by_rule = by_dialect || g.sampler == "ddim";
  // kdiff goes to 0 and, as plms does there, by remembered noise.
  g.call.dialect = by_rule && zero ? "kdiff" : "diffusers";
  const double last = zero || by_rule ? 0 : stable_diffusion_table()[0];
  const auto scale = [&](double sigma) { return vp ? 1 / std::sqrt(1 + sigma * sigma) : 1; };
  g.start_scale = scale(sigmas[0]);
  g.end_scale = scale(last);
  // Some end with a level twice, and take a step for nothing. Ours takes such levels as one.
  const double same = sigmas.back() * (1 - 1e-12);
  const bool twice = g.sampler == "deis_log_rho" && config.value("use_flow_sigmas", false);
  sigmas.push_back(twice ? same : std::min(last, same));
  if (c["space"] == "flow") g.call.space = Space::flow;
  c["start"].get_to(g.start);
  c["x"].get_to(g.want);
  return g;
}

void expect_equal(const json& c) {
  Golden g = golden(c);
  for (double& v : g.start) v /= g.start_scale;
  testing::ToyModel model;
  if (g.call.space == Space::flow) model.denoise = testing::on_flow(model.denoise);
  const testing::ToyRun got = run_toy(g.sampler, g.start, g.call, model);
  for (size_t i = 0; i < g.want.size(); ++i)
    EXPECT_NEAR(got.x[i] * g.end_scale, g.want[i], 1e-9) << g.sampler;
  EXPECT_EQ(got.evaluations, c["nfe"]);
  if (g.call.dialect == "diffusers") {
    EXPECT_EQ(got.draws, c["draws"]);
  }
}

TEST(diffusers, trajectories__are_equal) {
  const json file = testing::read_golden("samplers/samplers_diffusers");
  std::map<std::string, int> left_out;
  for (const json& c : file["cases"]) {
    const std::string why = excuse(c);
    ++left_out[why];
    if (!why.empty()) continue;
    SCOPED_TRACE(c["scheduler"].get<std::string>() + c["config"].dump() + " n=" + c["n"].dump());
    EXPECT_NO_THROW(expect_equal(c));
  }
  EXPECT_GE(left_out[""], 175);
  for (const auto& [why, count] : left_out)
    std::cout << count << (why.empty() ? " cases are equal" : " left out: ") << why << "\n";
}

}  // namespace
}  // namespace ebb::diffusers_golden_test
