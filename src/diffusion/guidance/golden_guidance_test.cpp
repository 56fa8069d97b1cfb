// Guidance rules against the programs that people know: tests/golden/samplers/guidance.json.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "diffusion/guidance/conditions.h"
#include "diffusion/guidance/guide.h"
#include "support/golden_file.h"

namespace ebb::golden_guidance_test {
namespace {

using nlohmann::json;

constexpr double tolerance = 1e-9;        // of 12 digits
constexpr double float_tolerance = 1e-6;  // where the reference calculates in f32
constexpr double svd_tolerance = 1e-5;    // in f32, of singular values that lie near each other

const json& golden_file() {
  static const json file = testing::read_golden("samplers/guidance");
  return file;
}

using Waves = std::map<Branch, std::vector<double>>;

std::vector<double> wave(const std::string& name) {
  const json& ab = golden_file()["waves"][name];
  std::vector<double> out(2 * 4 * 8 * 8);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::sin(ab[0].get<double>() * static_cast<double>(i) + ab[1].get<double>());
  return out;
}

// The files hold [2,4,8,8].
constexpr GuidedShape separate{2, 8, 8, 4, true};

struct Setting {
  std::vector<RuleCall> rules;
  GuidanceCall call{.shape = separate};
  double tolerance = golden_guidance_test::tolerance;
};

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// ---- what the references' names mean ---------------------------------------------------------

// Both samples as one, [1,16,8,4]: for references that sum over the batch.
Setting as_one(std::vector<RuleCall> rules) { return {std::move(rules), {.shape = {1, 16, 8, 4}}}; }

Setting comfy_setting(const std::string& rule, const json& o) {
  const auto value = [&](const char* name) { return text_of(o.at(name)); };
  const OptionTexts scale = {{"scale", o.contains("scale") ? value("scale") : "1"}};
  const auto with = [&](OptionTexts more) {
    more.insert(more.begin(), scale[0]);
    return more;
  };
  if (rule == "CFG") return {{{"cfg", scale}}};
  if (rule == "CFGZeroStar")
    return {
        {{"cfg_zero", with({{"zero_init_steps", "0"}, {"fit_noise", "true"}, {"form", "data"}})}}};
  if (rule == "CFGNorm") return {{{"cfg", scale}, {"cfg_norm", {{"strength", value("strength")}}}}};
  if (rule == "TCFG") return {{{"tcfg"}, {"cfg", scale}}, {.shape = separate}, svd_tolerance};
  if (rule == "Mahiro") return as_one({{"mahiro", scale}});
  if (rule == "APG")
    return {{{"apg", with({{"eta", value("eta")},
                           {"norm_threshold", value("norm_threshold")},
                           {"momentum", value("momentum")},
                           {"base", "cond"}})}}};
  if (rule == "EpsilonScaling")
    return {{{"cfg", scale}, {"epsilon_scaling", {{"scaling_factor", value("scaling_factor")}}}}};
  if (rule == "RescaleCFG")
    return {{{"cfg", scale}, {"cfg_rescale", {{"guidance_rescale", value("multiplier")}}}}};
  if (rule == "PerpNeg") return as_one({{"perp_neg", with({{"neg_scale", value("neg_scale")}})}});
  if (rule == "DualCFG")
    return {{{"dual_cfg",
              {{"scale", value("cfg1")},
               {"image_guidance_scale", value("cfg2")},
               {"style", o.at("nested").get<bool>() ? "nested" : "regular"}}}}};
  fail("unknown rule ", rule);
}

Setting diffusers_setting(const std::string& rule, const json& o) {
  Setting out;
  out.call.raw = raw_of(Prediction::x0);  // these have no space: predictions are what they are
  if (rule == "dynamic_threshold") {
    out.rules = {{"dynamic_threshold",
                  {{"ratio", text_of(o.at("ratio"))}, {"sample_max_value", text_of(o.at("max"))}}}};
    out.tolerance = float_tolerance;
    return out;
  }
  OptionTexts scale = {{"scale", text_of(o.at("scale"))}};
  const bool above = o.value("use_original_formulation", false);
  if (above) scale.emplace_back("use_original_formulation", "true");
  const auto with = [&](OptionTexts more) {
    more.insert(more.begin(), scale.begin(), scale.end());
    return more;
  };
  const auto number = [&](const std::string& name, double usual) {
    return number_text(o.value(name, usual));
  };
  // The vectors were made without the call that starts momentum: they have none. ComfyUI's have.
  const std::string apg = "adaptive_projected_guidance_";
  if (rule == "ClassifierFreeGuidance")
    out.rules = {
        {"cfg", scale},
        {"cfg_rescale", {{"guidance_rescale", number("guidance_rescale", 0)}, {"form", "raw"}}}};
  else if (rule == "ClassifierFreeZeroStarGuidance")
    out = {{{"cfg_zero", with({{"zero_init_steps", number("zero_init_steps", 1)}})}},
           out.call,
           float_tolerance};
  else if (rule == "AdaptiveProjectedGuidance")
    out.rules = {{"apg", with({{"eta", number("eta", 1)},
                               {"norm_threshold", number(apg + "rescale", 15)},
                               {"momentum", "0"},
                               {"by_pixel", o.contains(apg + "norm_dim") ? "true" : "false"},
                               {"form", "raw"},
                               {"base", above ? "paper" : "uncond"}})}};
  else if (rule == "MagnitudeAwareGuidance")
    out.rules = {{"mambo_g", with({{"alpha", number("alpha", 8)}})}};
  else if (rule == "TangentialClassifierFreeGuidance")
    out = {{{"tcfg"}, {"cfg", scale}}, out.call, svd_tolerance};
  else if (rule == "SkipLayerGuidance")
    out.rules = {{"cfg", scale}, {"skip_layers", {{"start", "0"}, {"stop", "1"}}}};
  else
    fail("unknown rule ", rule);
  return out;
}

// Every option has the extension's name.
Setting mimic_setting(const json& o) {
  OptionTexts texts;
  for (const char* name :
       {"scale", "mimic_scale", "threshold_percentile", "cfg_mode", "mimic_mode", "cfg_scale_min",
        "mimic_scale_min", "sched_val", "separate_feature_channels", "variability_measure",
        "scaling_startpoint", "interpolate_phi"})
    texts.emplace_back(name, text_of(o.at(name)));
  return {{{"mimic", texts}}};
}

Setting setting_of(const json& c) {
  const std::string source = c["source"], rule = c["rule"];
  if (source == "comfyui") return comfy_setting(rule, c["options"]);
  if (source == "diffusers") return diffusers_setting(rule, c["options"]);
  if (source == "sd-dynamic-thresholding") return mimic_setting(c["options"]);
  const OptionTexts scale = {{"scale", text_of(c["options"].at("scale"))}};
  if (rule == "and") return {{{"cfg", scale}}};
  OptionTexts both = scale;
  both.emplace_back("image_guidance_scale", text_of(c["options"].at("image_scale")));
  return {{{"dual_cfg", both}}};
}

// What no rule of ours does, with the reason.
std::string different(const json& c) {
  const json& o = c["options"];
  if (c["source"] == "sd-dynamic-thresholding" && !o.at("separate_feature_channels").get<bool>())
    return "the range is one of the batch";
  if (c["source"] == "comfyui" && c["rule"] == "APG" && o.at("scale") == 1.0)
    return "there is no unconditional prediction at scale 1";
  return "";
}

// ---- runs ------------------------------------------------------------------------------------

Waves waves_of(const json& c, size_t call) {
  const std::string rule = c["rule"];
  Waves out = {{Branch::cond, wave("cond")}, {Branch::uncond, wave("uncond")}};
  for (const Branch a : {Branch::partial, Branch::empty, Branch::skipped}) out[a] = wave("third");
  if (call == 1) out[Branch::cond] = wave("third");
  if (rule == "dynamic_threshold")
    for (double& v : out[Branch::cond]) v *= 2;
  if (rule != "and") return out;
  const json& weights = c["options"]["weights"];
  const std::vector<double> first = out[Branch::cond], third = wave("third");
  for (size_t n = 0; n < 2; ++n) {
    const std::vector<double> w = {weights[n]["cond"], weights[n]["third"]};
    const auto half = [n](std::span<const double> v) { return v.subspan(n * 256, 256); };
    const std::vector<Values> conds = {half(first), half(third)};
    joined_by_and(half(out[Branch::uncond]), conds, w,
                  std::span<double>(out[Branch::cond]).subspan(n * 256, 256));
  }
  return out;
}

// [2,4,8,8] as `to`, and back.
std::vector<double> moved(const std::vector<double>& v, const GuidedShape& to, bool back) {
  if (to.channels_first) return v;
  std::vector<double> out(v.size());
  for (size_t n = 0; n < 2; ++n)
    for (size_t p = 0; p < 64; ++p)
      for (size_t k = 0; k < 4; ++k) {
        const size_t first = (n * 4 + k) * 64 + p, last = (n * 64 + p) * 4 + k;
        (back ? out[first] : out[last]) = back ? v[last] : v[first];
      }
  return out;
}

void expect_values(const std::vector<double>& got, const json& want, double tolerance) {
  const json &first = want["first"], &last = want["last"], &sums = want["sums"];
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_NEAR(got[i], first[i].get<double>(), tolerance * 10) << i;
  for (size_t i = 0; i < last.size(); ++i)
    EXPECT_NEAR(got[got.size() - last.size() + i], last[i].get<double>(), tolerance * 10) << i;
  double sum[4] = {};
  for (size_t i = 0; i < got.size(); ++i) {
    const double k = static_cast<double>(i);
    sum[0] += got[i];
    sum[1] += got[i] * got[i];
    sum[2] += got[i] * std::sin(k);
    sum[3] += got[i] * std::cos(3 * k);
  }
  for (size_t i = 0; i < 4; ++i) {
    const double v = sums[i].get<double>();
    EXPECT_NEAR(sum[i], v, tolerance * 100 * std::max(1.0, std::abs(v))) << "sum " << i;
  }
}

void expect_case(const json& c) {
  Setting s = setting_of(c);
  size_t call = 0;
  s.call.step = [&](double) { return c["options"].value("step", static_cast<int64_t>(call)); };
  s.call.sigmas.resize(11);
  const HostPredict<double> predict = [&](std::span<const double>, double,
                                          std::span<const Branch> branches,
                                          std::span<const std::span<double>> predictions) {
    const Waves waves = waves_of(c, call);
    for (size_t k = 0; k < branches.size(); ++k) {
      const std::vector<double> v = moved(waves.at(branches[k]), s.call.shape, false);
      std::copy(v.begin(), v.end(), predictions[k].begin());
    }
  };
  const HostDenoise<double> denoise = guided<double>(predict, s.rules, s.call);
  const double sigma = c["options"].value("sigma", 1.0);
  const std::vector<double> x = moved(wave("x"), s.call.shape, false);
  for (; call < c["out"].size(); ++call) {
    std::vector<double> out(x.size());
    denoise(x, call == 1 ? sigma / 2 : sigma, out, {});
    expect_values(moved(out, s.call.shape, true), c["out"][call], s.tolerance);
  }
}

// Steps in which the reference's window is open.
void expect_window(const json& c) {
  const json& o = c["options"];
  const OptionTexts window = {{"start", text_of(o["start"])}, {"stop", text_of(o["stop"])}};
  std::vector<RuleCall> rules = {{"interval", window}, {"cfg"}};
  if (c["rule"] == "SkipLayerGuidance window") rules = {{"skip_layers", window}};
  const Guide guide(rules);
  std::vector<int64_t> on;
  const int64_t steps = o["steps"];
  for (int64_t i = 0; i < steps; ++i)
    if (guide.branches({.sigma = 1, .step = i, .steps = steps}).size() == 2) on.push_back(i);
  EXPECT_EQ(on, c["active_steps"].get<std::vector<int64_t>>());
}

// How many cases each source has.
using Counts = std::map<std::string, int>;

TEST(golden_guidance, every_case__is_that_of_the_reference_or_excused) {
  Counts compared, excused;
  for (const json& c : golden_file()["cases"]) {
    SCOPED_TRACE(c["source"].get<std::string>() + " " + c["rule"].get<std::string>() + " " +
                 c["options"].dump());
    const std::string reason = different(c);
    if (!reason.empty()) {
      ++excused[reason];
      continue;
    }
    const bool window = c.contains("active_steps");
    ASSERT_NE(c.contains("out"), window);
    EXPECT_NO_THROW((window ? expect_window : expect_case)(c));
    ++compared[c["source"].get<std::string>()];
  }
  const Counts want = {
      {"comfyui", 70}, {"diffusers", 77}, {"sd-dynamic-thresholding", 20}, {"webui", 2}};
  EXPECT_EQ(compared, want);
  const Counts reasons = {{"the range is one of the batch", 8},
                          {"there is no unconditional prediction at scale 1", 6}};
  EXPECT_EQ(excused, reasons);
}

}  // namespace
}  // namespace ebb::golden_guidance_test
