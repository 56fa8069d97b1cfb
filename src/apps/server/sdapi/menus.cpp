#include "apps/server/sdapi/menus.h"

#include <array>

#include "apps/server/catalogue.h"
#include "base/error.h"
#include "base/names.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/sampler_names.h"

namespace ebb::server::sdapi {
namespace {

constexpr std::array samplers_of_menu = {MenuName{"DPM++ 2M", "k_dpmpp_2m"},
                                         MenuName{"DPM++ SDE", "k_dpmpp_sde"},
                                         MenuName{"DPM++ 2M SDE", "k_dpmpp_2m_sde"},
                                         MenuName{"DPM++ 3M SDE", "k_dpmpp_3m_sde"},
                                         MenuName{"DPM++ 2S a", "k_dpmpp_2s_a"},
                                         MenuName{"Euler a", "k_euler_a"},
                                         MenuName{"Euler", "k_euler"},
                                         MenuName{"LMS", "k_lms"},
                                         MenuName{"Heun", "k_heun"},
                                         MenuName{"DPM2", "k_dpm_2"},
                                         MenuName{"DPM2 a", "k_dpm_2_a"},
                                         MenuName{"DPM fast", "k_dpm_fast"},
                                         MenuName{"DPM adaptive", "k_dpm_ad"},
                                         MenuName{"Restart", "restart"},
                                         MenuName{"DDIM", "ddim"},
                                         MenuName{"DDIM CFG++", "ddim_cfgpp"},
                                         MenuName{"PLMS", "plms"},
                                         MenuName{"UniPC", "unipc"},
                                         MenuName{"LCM", "k_lcm"}};

constexpr std::array schedules_of_menu = {MenuName{"Automatic", "automatic"},
                                          MenuName{"Uniform", "uniform"},
                                          MenuName{"Karras", "karras"},
                                          MenuName{"Exponential", "exponential"},
                                          MenuName{"Polyexponential", "polyexponential"},
                                          MenuName{"SGM Uniform", "sgm_uniform"},
                                          MenuName{"KL Optimal", "kl_optimal"},
                                          MenuName{"Align Your Steps", "align_your_steps"},
                                          MenuName{"Simple", "simple"},
                                          MenuName{"Normal", "normal"},
                                          MenuName{"DDIM", "ddim"},
                                          MenuName{"Beta", "beta"},
                                          MenuName{"Turbo", "turbo"}};

bool is_sampler(const std::string& name) {
  try {
    find_sampler(split_schedule(plain_name(name)).sampler);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::span<const MenuName> sampler_menu() { return samplers_of_menu; }
std::span<const MenuName> schedule_menu() { return schedules_of_menu; }

MenuChoice menu_choice(const std::string& name) {
  if (name.size() > longest_name) return {name, ""};  // which is no sampler
  for (const MenuName& m : samplers_of_menu)
    if (small_letters(name) == m.alias) return {m.name, ""};
  if (is_sampler(name)) return {name, ""};
  MenuChoice out{name, ""};
  size_t longest = 0;
  for (const MenuName& m : schedules_of_menu)
    for (const std::string_view ending : {m.name, m.alias}) {
      const std::string text = small_letters(name), small = small_letters(std::string(ending));
      if (!text.ends_with(small) || small.size() <= longest) continue;
      const std::string before(
          trimmed(std::string_view(name).substr(0, name.size() - small.size())));
      if (!is_sampler(before)) continue;
      longest = small.size();
      out = {before, m.name};
    }
  return out;
}

}  // namespace ebb::server::sdapi
