#include "diffusion/solver/diffusers_schedulers.h"

#include <algorithm>

namespace ebb {
namespace {

using Fields = std::vector<std::pair<std::string_view, std::string_view>>;

// Without a function of its own for it, which no file holds, it renews noise in the steps that
// begin at these timesteps.
DiffusersScheduler sa_solver() {
  return {"SASolverScheduler",
          "sa_solver",
          {{"predictor_order", "2"},
           {"corrector_order", "2"},
           {"simple_order_2", "true"},
           {"from_timestep", "800"},
           {"to_timestep", "200"}},
          {{"predictor_order", "predictor_order"}, {"corrector_order", "corrector_order"}},
          {{"algorithm_type",
            "noise_prediction",
            {{"predict_x0", "false"}, {"simple_order_2", "false"}}}},
          {{"tau_func", "", "noise is renewed in steps from timestep 800 to 200, as without it"},
           {"lower_order_final", "false", "orders fall at the end"}}};
}

const std::vector<DiffusersScheduler>& table() {
  static const Fields dpm_solver = {{"solver_order", "solver_order"},
                                    {"solver_type", "solver_type"},
                                    {"lower_order_final", "lower_order_final"},
                                    {"algorithm_type", "algorithm_type"}};
  static const Fields multistep = [] {
    Fields out = dpm_solver;
    out.emplace_back("euler_at_final", "euler_at_final");
    return out;
  }();
  static const std::vector<DiffusersScheduler> all = {
      {"EulerDiscreteScheduler", "euler"},
      {"EulerAncestralDiscreteScheduler", "euler_ancestral"},
      {"HeunDiscreteScheduler", "heun"},
      {"KDPM2DiscreteScheduler", "dpm_2"},
      {"KDPM2AncestralDiscreteScheduler", "dpm_2_ancestral"},
      {"LMSDiscreteScheduler", "lms"},
      {"DPMSolverSDEScheduler", "dpmpp_sde"},
      {"LTXEulerAncestralRFScheduler",
       "euler_ancestral",
       {},
       {{"eta", "eta"}, {"s_noise", "s_noise"}}},
      {"DDIMScheduler", "ddim"},
      {"DDPMScheduler", "ddpm", {}, {{"variance_type", "variance_type"}}},
      {"PNDMScheduler", "pndm", {}, {}, {{"skip_prk_steps", "true", {}, "plms"}}},
      {"LCMScheduler", "lcm"},
      {"FlowMatchLCMScheduler", "lcm"},
      {"TCDScheduler", "tcd"},
      {"DPMSolverMultistepScheduler", "dpm_solver_multistep", {}, multistep},
      {"DPMSolverSinglestepScheduler",
       "dpm_solver_singlestep",
       {{"lower_order_final", "false"}},
       dpm_solver},
      {"DEISMultistepScheduler",
       "deis_log_rho",
       {{"max_order", "2"}},
       {{"solver_order", "max_order"}, {"lower_order_final", "lower_order_final"}}},
      {"UniPCMultistepScheduler",
       "uni_pc",
       {{"order", "2"}, {"variant", "bh2"}},
       {{"solver_order", "order"},
        {"solver_type", "variant"},
        {"lower_order_final", "lower_order_final"},
        {"predict_x0", "predict_x0"},
        {"disable_corrector", "disable_corrector"}}},
      sa_solver(),
      {"FlowMatchEulerDiscreteScheduler",
       "flow_match_euler",
       {},
       {},
       {{"stochastic_sampling", "true", {}, "flow_match_euler_stochastic"}}},
      {"FlowMatchHeunDiscreteScheduler", "flow_match_heun"},
      {"EDMEulerScheduler", "edm_euler"},
      {"EDMDPMSolverMultistepScheduler", "edm_dpm_solver_multistep", {}, multistep},
      {"CosineDPMSolverMultistepScheduler", "cosine_dpmpp_2m_sde", {}, multistep},
  };
  return all;
}

}  // namespace

DiffusersScheduler::Meant DiffusersScheduler::meant_by(
    const std::function<std::optional<std::string>(std::string_view)>& config) const {
  Meant out{.sampler = sampler, .options = options, .unfollowed = {}};
  const auto set = [&](std::string_view name, const std::string& text) {
    std::erase_if(out.options, [&](const auto& o) { return o.first == name; });
    out.options.emplace_back(name, text);
  };
  for (const auto& [field, name] : fields)
    if (const auto text = config(field)) set(name, *text);
  for (const Meaning& m : meanings) {
    if (config(m.field) != m.value) continue;
    for (const auto& [name, text] : m.options) set(name, text);
    if (!m.sampler.empty()) out.sampler = m.sampler;
  }
  for (const Unfollowed& u : unfollowed)
    if (const auto text = config(u.field); text && (u.value.empty() || *text == u.value))
      out.unfollowed.push_back(u);
  return out;
}

const DiffusersScheduler* find_diffusers_scheduler(std::string_view name) {
  const auto it = std::ranges::find(table(), name, &DiffusersScheduler::name);
  return it == table().end() ? nullptr : &*it;
}

}  // namespace ebb
