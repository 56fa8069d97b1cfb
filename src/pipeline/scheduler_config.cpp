#include "pipeline/scheduler_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "diffusion/solver/diffusers_schedulers.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/sampler_names.h"
#include "pipeline/folder_json.h"

namespace ebb {
namespace {

using nlohmann::json;

class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), json_(read_folder_json(path, "scheduler")) {}

  SchedulerConfig read() {
    require(!json_.empty(), "scheduler: the file says nothing (an empty object)  ", path_);
    prediction();
    betas();
    sampler();
    if (flag("rescale_betas_zero_snr")) out_.diffusion.emplace_back("zero_snr", "diffusers");
    out_.spacing = text("timestep_spacing", "");
    require(out_.spacing.empty() || out_.spacing == "linspace" || out_.spacing == "leading" ||
                out_.spacing == "trailing",
            "scheduler: timestep_spacing must be linspace, leading or trailing ('", out_.spacing,
            "')  ", path_);
    out_.offset = static_cast<int64_t>(number("steps_offset", 0));
    if (json_.contains("set_alpha_to_one")) out_.ends_at_one = flag("set_alpha_to_one");
    out_.last_is_sigma_min = text("final_sigmas_type", "zero") == "sigma_min";
    out_.original_steps = static_cast<int64_t>(number("original_inference_steps", 50));
    for (const char* spread : {"karras", "exponential", "beta"})
      if (flag(str("use_", spread, "_sigmas").c_str())) out_.spread = spread;
    for (const char* name : {"thresholding", "clip_sample"})
      if (flag(name))
        out_.warnings.push_back(str("scheduler: ", name, " is not followed  ", path_));
    if (text("interpolation_type", "linear") != "linear" || flag("use_lu_lambdas"))
      out_.warnings.push_back(
          str("scheduler: interpolation_type and use_lu_lambdas are not followed  ", path_));
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

  void sampler() {
    out_.name = text("_class_name", "");
    const DiffusersScheduler* s = find_diffusers_scheduler(out_.name);
    if (!s) return;
    auto meant = s->meant_by([&](std::string_view field) -> std::optional<std::string> {
      const auto it = json_.find(field);
      if (it == json_.end() || it->is_null()) return {};
      return it->is_string() ? it->get<std::string>() : it->dump();
    });
    out_.sampler = meant.sampler;
    out_.sampler_options = std::move(meant.options);
    for (const auto& [field, value, instead] : meant.unfollowed)
      out_.warnings.push_back(
          str("scheduler: ", field, " is not followed: ", instead, "  ", path_));
  }

  // EDM's schedulers have no betas.
  void prediction() {
    const std::string name = text("_class_name", ""), given = text("prediction_type", "epsilon");
    if (name.starts_with("EDM")) {
      require(given == "epsilon", "scheduler: ", given, " of EDM is not implemented  ", path_);
      out_.diffusion.emplace_back("precond", "edm");
      out_.diffusion.emplace_back("sigma_data", str(number("sigma_data", 0.5)));
      out_.diffusion.emplace_back("sigma_min", number_text(number("sigma_min", 0.002)));
      out_.diffusion.emplace_back("sigma_max", number_text(number("sigma_max", 80)));
      out_.edm = true;
      out_.edm_schedule = text("sigma_schedule", "karras");
      out_.rho = number("rho", 7);
      require(out_.edm_schedule == "karras" || out_.edm_schedule == "exponential",
              "scheduler: sigma_schedule must be karras or exponential ('", out_.edm_schedule,
              "')  ", path_);
      return;
    }
    require(!name.starts_with("FlowMatch"), "scheduler: ", name,
            " is not of Stable Diffusion 1, 2 "
            "or XL  ",
            path_);
    const auto it = std::ranges::find(diffusers_predictions, given, &DiffusersPrediction::type);
    require(it != std::end(diffusers_predictions),
            "scheduler: prediction_type must be epsilon, v_prediction or sample "
            "('",
            given, "')  ", path_);
    out_.diffusion.emplace_back("precond", it->precond);
  }

  void betas() {
    if (out_.diffusion.front().second == "edm") return;
    const auto it = std::ranges::find(diffusers_betas, text("beta_schedule", "linear"),
                                      &DiffusersBetas::schedule);
    require(it != std::end(diffusers_betas) &&
                (!json_.contains("trained_betas") || json_["trained_betas"].is_null()),
            "scheduler: beta_schedule must be linear, scaled_linear or squaredcos_cap_v2  ", path_);
    const double start = number("beta_start", 1e-4), end = number("beta_end", 0.02);
    const auto near = [](double a, double b) { return std::abs(a - b) < 1e-9; };
    require(it->name == "cosine" || (near(start, it->start) && near(end, it->end)),
            "scheduler: ", it->schedule, " betas from ", start, " to ", end,
            " are not implemented  ", path_);
    out_.diffusion.emplace_back("betas", it->name);
    out_.diffusion.emplace_back("timesteps",
                                str(static_cast<int64_t>(number("num_train_timesteps", 1000))));
  }

  const std::string& path_;
  json json_;
  SchedulerConfig out_;
};

// How a scheduler makes its levels.
enum class Spacing : uint8_t {
  timesteps,   // of the table, integers
  continuous,  // any timesteps, levels spread between their ends
  skipping,    // spaces one step more and leaves it out; levels spread over the whole table
  linspace,    // likewise, whatever the file says of the spacing
  consistency,
};

// A scheduler that Stable Diffusion's pipelines take, and the samplers that it is for.
struct Scheduler {
  std::vector<const char*> samplers;
  Spacing spacing;
  bool ends_at_one = true;   // where the file does not say set_alpha_to_one; `timesteps` alone
  bool ends_at_min = false;  // always at the smallest level, whatever the file says
  bool edm = false;          // EDM has a scheduler for it, too
  bool takes_final = true;   // final_sigmas_type
};

const std::vector<Scheduler>& schedulers() {
  static const std::vector<Scheduler> all = {
      {.samplers = {"ddim"}, .spacing = Spacing::timesteps},
      {.samplers = {"ddpm"}, .spacing = Spacing::timesteps},
      {.samplers = {"plms", "pndm"}, .spacing = Spacing::timesteps, .ends_at_one = false},
      {.samplers = {"euler"}, .spacing = Spacing::continuous, .edm = true},
      {.samplers = {"euler_ancestral", "heun", "lms", "dpm_2", "dpm_2_ancestral", "dpmpp_sde"},
       .spacing = Spacing::continuous,
       .takes_final = false},
      {.samplers = {"dpmpp_2m", "dpmpp_2m_sde", "dpm_solver_multistep"},
       .spacing = Spacing::skipping,
       .edm = true},
      {.samplers = {"dpmpp_3m_sde", "uni_pc"}, .spacing = Spacing::skipping},
      {.samplers = {"deis", "sa_solver"}, .spacing = Spacing::skipping, .ends_at_min = true},
      {.samplers = {"dpm_solver_singlestep", "dpmpp_2s_ancestral"}, .spacing = Spacing::linspace},
      {.samplers = {"lcm", "tcd"}, .spacing = Spacing::consistency},
  };
  return all;
}

const Scheduler* scheduler_for(const std::string& sampler) {
  for (const Scheduler& s : schedulers())
    if (std::ranges::any_of(s.samplers, [&](const char* n) { return means_sampler(n, sampler); }))
      return &s;
  return nullptr;
}

class OptionsText {
 public:
  void add(const char* name, const std::string& value) {
    text_ += str(text_.empty() ? "" : ",", name, "=", value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

bool ends_at_min(const SchedulerConfig& c, const Scheduler& s) {
  if (s.ends_at_min) return true;
  const bool ddpm = means_sampler("ddpm", s.samplers[0]);
  if (s.spacing == Spacing::timesteps) return !ddpm && !c.ends_at_one.value_or(s.ends_at_one);
  return s.takes_final && c.last_is_sigma_min;
}

}  // namespace

SchedulerConfig read_scheduler_config(const std::string& path) { return Reader(path).read(); }

ScheduleText schedule_of(const SchedulerConfig& c, const std::string& sampler) {
  const Scheduler* known = scheduler_for(sampler);
  ScheduleText out;
  if (!known || (c.edm && !known->edm))
    out.warnings.push_back(str("scheduler: diffusers has no ", c.edm ? "scheduler of EDM" : "one",
                               " for --sampler ", sampler,
                               "; the levels are those of its Euler; --schedule names others"));
  OptionsText o;
  if (c.edm) {
    if (c.edm_schedule == "karras") o.add("rho", number_text(c.rho));
    return {c.edm_schedule, o.text(), out.warnings};
  }
  const Scheduler& s = known ? *known : *scheduler_for("euler");
  if (s.spacing == Spacing::consistency)
    return {"lcm", str("original_steps=", c.original_steps), out.warnings};
  const bool skips = s.spacing == Spacing::skipping || s.spacing == Spacing::linspace;
  const bool at_min = ends_at_min(c, s);
  // The ends of the table are those of all timesteps but for the one that is left out.
  const bool whole = skips && !c.spread.empty();
  out.schedule = s.spacing == Spacing::timesteps ? "leading" : "linspace";
  if (!c.spacing.empty() && s.spacing != Spacing::linspace && !whole) out.schedule = c.spacing;
  if (out.schedule == "leading") o.add("offset", str(c.offset));
  if (out.schedule == "linspace" && s.spacing == Spacing::continuous) o.add("integer", "false");
  if (out.schedule != "trailing" && skips && !whole) o.add("skip_last", "true");
  if (at_min) o.add("last", "sigma_min");
  const bool ancestral = means_sampler("euler_ancestral", sampler);
  if (s.spacing != Spacing::timesteps && !ancestral && !c.spread.empty()) o.add("spread", c.spread);
  out.options = o.text();
  return out;
}

}  // namespace ebb
