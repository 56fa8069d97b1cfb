#include "pipeline/scheduler_config.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/sampler_names.h"
#include "io/file.h"

namespace ebb {
namespace {

using nlohmann::json;

constexpr int64_t file_limit = 1 << 20;

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {
    const std::string text = io::read_whole_file(path, "scheduler", file_limit);
    json_ = json::parse(text, nullptr, false);
    require(json_.is_object(), "scheduler: must be a JSON object  ", path);
  }

  SchedulerConfig read() {
    prediction();
    betas();
    if (flag("rescale_betas_zero_snr")) out_.diffusion.emplace_back("zero_snr", "diffusers");
    out_.spacing = text("timestep_spacing", "");
    require(out_.spacing.empty() || out_.spacing == "linspace" || out_.spacing == "leading" ||
                out_.spacing == "trailing",
            "scheduler: timestep_spacing must be linspace, leading or trailing ('", out_.spacing,
            "')  ", path_);
    out_.offset = static_cast<int64_t>(number("steps_offset", 0));
    out_.last_is_sigma_min = json_.contains("set_alpha_to_one") && !flag("set_alpha_to_one");
    for (const char* spread : {"karras", "exponential", "beta"})
      if (flag(str("use_", spread, "_sigmas").c_str())) out_.spread = spread;
    for (const char* name : {"thresholding", "clip_sample"})
      if (flag(name))
        out_.warnings.push_back(str("scheduler: ", name, " is not followed  ", path_));
    return std::move(out_);
  }

 private:
  std::string text(const char* name, const char* otherwise) const {
    const auto it = json_.find(name);
    if (it == json_.end() || it->is_null()) return otherwise;
    require(it->is_string(), "scheduler: ", name, " must be text  ", path_);
    return it->get<std::string>();
  }
  double number(const char* name, double otherwise) const {
    const auto it = json_.find(name);
    if (it == json_.end() || it->is_null()) return otherwise;
    require(it->is_number() && std::abs(it->get<double>()) <= 1e6, "scheduler: ", name,
            " must be a number  ", path_);
    return it->get<double>();
  }
  bool flag(const char* name) const {
    const auto it = json_.find(name);
    return it != json_.end() && it->is_boolean() && it->get<bool>();
  }

  // EDM's schedulers have no betas.
  void prediction() {
    const std::string name = text("_class_name", ""), given = text("prediction_type", "epsilon");
    if (name.starts_with("EDM")) {
      require(given == "epsilon", "scheduler: ", given, " of EDM is not implemented  ", path_);
      out_.diffusion.emplace_back("precond", "edm");
      out_.diffusion.emplace_back("sigma_data", str(number("sigma_data", 0.5)));
      return;
    }
    require(!name.starts_with("FlowMatch"), "scheduler: ", name,
            " is not of Stable Diffusion 1, 2 "
            "or XL  ",
            path_);
    static const std::map<std::string, std::string> known{
        {"epsilon", "eps"}, {"v_prediction", "v"}, {"sample", "x0"}};
    const auto it = known.find(given);
    require(it != known.end(),
            "scheduler: prediction_type must be epsilon, v_prediction or sample "
            "('",
            given, "')  ", path_);
    out_.diffusion.emplace_back("precond", it->second);
  }

  void betas() {
    if (out_.diffusion.front().second == "edm") return;
    static const std::map<std::string, std::string> known{
        {"linear", "linear"}, {"scaled_linear", "scaled_linear"}, {"squaredcos_cap_v2", "cosine"}};
    const auto it = known.find(text("beta_schedule", "linear"));
    require(
        it != known.end() && (!json_.contains("trained_betas") || json_["trained_betas"].is_null()),
        "scheduler: beta_schedule must be linear, scaled_linear or squaredcos_cap_v2  ", path_);
    const bool scaled = it->second == "scaled_linear";
    const double start = number("beta_start", 1e-4), end = number("beta_end", 0.02);
    const auto near = [](double a, double b) { return std::abs(a - b) < 1e-9; };
    require(it->second == "cosine" ||
                (near(start, scaled ? 0.00085 : 1e-4) && near(end, scaled ? 0.012 : 0.02)),
            "scheduler: ", it->first, " betas from ", start, " to ", end, " are not implemented  ",
            path_);
    out_.diffusion.emplace_back("betas", it->second);
    out_.diffusion.emplace_back("timesteps",
                                str(static_cast<int64_t>(number("num_train_timesteps", 1000))));
  }

  const std::string& path_;
  json json_;
  SchedulerConfig out_;
};

bool any_of(const std::string& sampler, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* n) { return means_sampler(n, sampler); });
}

}  // namespace

SchedulerConfig read_scheduler_config(const std::string& path) { return Reader(path).read(); }

// diffusers' own: DDIM and PNDM have leading timesteps, the others linspace; those of k-diffusion
// keep fractions; multistep DPM-Solvers space one step more and leave it out.
ScheduleText schedule_of(const SchedulerConfig& c, const std::string& sampler) {
  const bool table = any_of(sampler, {"ddim", "ddpm", "plms", "pndm", "ipndm"});
  const bool k_diffusion =
      any_of(sampler, {"euler", "euler_ancestral", "heun", "lms", "dpm_2", "dpm_2_ancestral"});
  const bool spacing_given = !c.spacing.empty();
  const std::string spacing = spacing_given ? c.spacing : table ? "leading" : "linspace";
  std::string options;
  const auto add = [&](const char* name, const std::string& value) {
    options += str(options.empty() ? "" : ",", name, "=", value);
  };
  if (spacing == "leading") add("offset", str(c.offset));
  if (spacing == "linspace" && k_diffusion) add("integer", "false");
  if (spacing != "trailing" && !table && !k_diffusion) add("skip_last", "true");
  if (table && c.last_is_sigma_min) add("last", "sigma_min");
  if (!c.spread.empty()) add("spread", c.spread);
  return {spacing, options};
}

}  // namespace ebb
