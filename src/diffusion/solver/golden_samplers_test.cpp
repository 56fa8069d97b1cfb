// Samplers against the programs that people know: every case of tests/golden/samplers/samplers_*.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "diffusion/solver/sampler.h"
#include "support/golden_file.h"
#include "support/source_folder.h"
#include "support/toy_data.h"

namespace ebb::golden_samplers_test {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr double double_tolerance = 1e-10;  // of the golden files' 14 digits, over 20 steps
constexpr double float_tolerance = 2e-5;

// Where the reference leaves rounding behind: dpm_fast's last noise is the root of the difference
// of two equal squares.
const std::map<std::string, double> other_tolerances = {{"dpm_fast", 1e-9}};

bool is_finite(const json& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](const json& n) { return n.is_number(); });
}

// Why a case is left out. Nothing else may be.
std::string excuse(const json& c) {
  if (c.contains("error")) return "the reference fails";
  if (!is_finite(c["x"])) return "the reference gives NaN";
  const std::string sampler = c["sampler"];
  const json& options = c["options"];
  if (sampler.starts_with("uni_pc") && c["nfe"] == 1)
    return "the reference leaves the noise as it was";
  if (options.value("deis_mode", "") == "rhoab" && options.value("max_order", 0) == 4)
    return "the reference weights four predictions with the weights of an earlier step";
  if (sampler == "ddpm" && c["space"] == "flow")
    return "the reference takes states of flow models for others";
  return "";
}

const std::map<std::string, std::string> dialects = {
    {"k-diffusion", "kdiff"},
    {"ComfyUI", "comfy"},
    {"stable-diffusion-webui", "a1111"},
    {"stable-diffusion.cpp", "sdcpp"},
};

// The references' names of options, where ours differ.
const std::map<std::string, std::string> option_names = {{"gamma", "ge_gamma"},
                                                         {"lms_max_order", "order"},
                                                         {"noise_scale_start", "s_noise"},
                                                         {"noise_scale_end", "s_noise_end"}};
// And of their values.
const std::map<std::string, std::string> option_values = {
    {"ER-SDE", "er_sde"}, {"Reverse-time SDE", "reverse_sde"}, {"ODE", "ode"}};

std::vector<std::string> golden_files() {
  std::vector<std::string> out;
  for (const auto& entry :
       fs::directory_iterator(testing::source_folder() + "/tests/golden/samplers"))
    if (entry.path().filename().string().starts_with("samplers_")) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// {"name": ...}, or the name as a key. The webui's file names k-diffusion too.
std::string reference_of(const json& file) {
  const json& reference = file["reference"];
  if (reference.contains("name")) return reference["name"];
  return reference.contains("stable-diffusion-webui") ? "stable-diffusion-webui" : "";
}

std::string text_of(const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const auto ours = option_values.find(text);
  return ours == option_values.end() ? text : ours->second;
}

struct GoldenCase {
  std::string name;  // for messages
  std::string sampler;
  SampleCall call;
  std::vector<double> start;
  const json* want;
};

// Objects give their members: {"tau": {"eta": 1}} is eta=1.
void add_options(OptionTexts& out, const json& options) {
  for (const auto& [key, value] : options.items()) {
    const auto ours = option_names.find(key);
    if (value.is_object())
      add_options(out, value);
    else
      out.emplace_back(ours == option_names.end() ? key : ours->second, text_of(value));
  }
}

// stable-diffusion.cpp takes an eta for every sampler; where there is none it is 0.
void drop_unused_eta(GoldenCase& c) {
  if (c.call.dialect != "sdcpp") return;
  for (const Option& o : find_sampler(c.sampler).sampler->options())
    if (o.name == "eta") return;
  std::erase(c.call.options, std::pair<std::string, std::string>("eta", "0.0"));
}

GoldenCase case_of(const json& file, const json& c) {
  GoldenCase out;
  out.sampler = c["sampler"];
  out.name =
      reference_of(file) + " " + out.sampler + c["options"].dump() + " " + text_of(c["grid"]);
  out.call.sigmas = file["grids"][text_of(c["grid"])].get<std::vector<double>>();
  out.call.space = c["space"] == "flow" ? Space::flow : Space::ve;
  out.call.dialect = dialects.at(reference_of(file));
  // The web UI's consistency function is part of its denoiser, which is not the toy here
  // (tests/golden_programs_test.cpp has both).
  if (out.call.dialect == "a1111" && out.sampler == "lcm") out.call.dialect = "kdiff";
  out.call.first_sigma = 3 * (1 - 1e-4) / (1 + 2 * (1 - 1e-4));  // the flow model's shift is 3
  if (out.sampler.starts_with("sa_solver") && file.contains("tau_default") &&
      !c["options"].contains("tau")) {
    const json& range = file["tau_default"][text_of(c["space"])];
    add_options(out.call.options, {{"start", range[0]}, {"end", range[1]}});
  }
  add_options(out.call.options, c["options"]);
  drop_unused_eta(out);
  out.start = file["starts"][text_of(c["space"])].get<std::vector<double>>();
  out.want = &c;
  return out;
}

testing::ToyModel model_of(Space space) {
  testing::ToyModel model;
  if (space == Space::ve) return model;
  model.denoise = testing::on_flow(model.denoise);
  model.uncond = testing::on_flow(model.uncond);
  return model;
}

std::vector<double> run_floats(const GoldenCase& c) {
  const testing::ToyModel model = model_of(c.call.space);
  HostLatents<float> latents(
      c.start.size(),
      [&](std::span<const float> x, double sigma, std::span<float> d, std::span<float> u) {
        for (size_t i = 0; i < x.size(); ++i) d[i] = static_cast<float>(model.denoise(x[i], sigma));
        for (size_t i = 0; i < u.size(); ++i) u[i] = static_cast<float>(model.uncond(x[i], sigma));
      },
      model.noise);
  const std::vector<float> start(c.start.begin(), c.start.end());
  return latents.values(sample(c.sampler, latents, latents.put(start), c.call));
}

void expect_near(const std::vector<double>& x, const json& want, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(x.size(), want.size()) << what;
  for (size_t i = 0; i < x.size(); ++i) {
    const double w = want[i];
    ASSERT_NEAR(x[i], w, tolerance * std::max(1.0, std::abs(w))) << what << " value " << i;
  }
}

void expect_equal(const GoldenCase& c) {
  const json& want = *c.want;
  const testing::ToyRun run = testing::run_toy(c.sampler, c.start, c.call, model_of(c.call.space));
  EXPECT_EQ(run.evaluations, want["nfe"].get<int64_t>()) << c.name;
  EXPECT_EQ(run.draws, want["draws"].get<int64_t>()) << c.name;
  const auto other = other_tolerances.find(c.sampler);
  const double tolerance = other == other_tolerances.end() ? double_tolerance : other->second;
  expect_near(run.x, want["x"], tolerance, c.name);
  // What float32 costs the reference it may cost us. stable-diffusion.cpp's tcd gives NaN there.
  const json& f32 = want["f32_error"];
  const double slack = f32.is_number() ? f32.get<double>() : 0;
  expect_near(run_floats(c), want["x"], float_tolerance + slack, c.name + " f32");
}

TEST(golden_samplers, every_case__is_that_of_the_reference) {
  std::map<std::string, int> left_out;
  int cases = 0;
  for (const std::string& path : golden_files()) {
    const json file = testing::read_json(path);
    const std::string reference = reference_of(file);
    if (reference == "diffusers") continue;  // diffusers_golden_test.cpp has those
    ASSERT_TRUE(dialects.contains(reference)) << path;
    for (const json& c : file["cases"]) {
      if (reference == "stable-diffusion-webui" && !c.contains("grid"))
        continue;  // by timesteps, not levels: vp_samplers_test.cpp has those
      ++cases;
      const std::string why = excuse(c);
      ++left_out[why];
      if (!why.empty()) continue;
      const GoldenCase golden = case_of(file, c);
      SCOPED_TRACE(golden.name);
      EXPECT_NO_THROW(expect_equal(golden)) << golden.name;
    }
  }
  EXPECT_GE(cases, 1300);
  EXPECT_GE(left_out[""], 0.95 * cases);
  for (const auto& [why, count] : left_out)
    std::cout << count << (why.empty() ? " cases are equal" : " left out: ") << why << "\n";
}

// Samplers that no case names: where they are compared.
const std::map<std::string, std::string> compared_elsewhere = {
    {"dpm_solver_multistep", "diffusers_golden_test.cpp, by the scheduler's name"},
    {"dpm_solver_singlestep", "diffusers_golden_test.cpp, by the scheduler's name"},
    {"dpmpp_3m_sde_exact", "no program has it; exponential_test.cpp: it equals uni_pc"},
};

TEST(golden_samplers, every_sampler__has_a_case) {
  std::set<std::string> seen;
  for (const std::string& path : golden_files()) {
    const json file = testing::read_json(path);
    for (const json& c : file["cases"])
      if (c.contains("sampler"))
        seen.insert(find_sampler(c["sampler"].get<std::string>()).sampler->name);
  }
  for (const Sampler* s : all_samplers())
    EXPECT_NE(seen.contains(s->name), compared_elsewhere.contains(s->name)) << s->name;
}

}  // namespace
}  // namespace ebb::golden_samplers_test
