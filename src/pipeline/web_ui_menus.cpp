#include "pipeline/web_ui_menus.h"

#include <array>

namespace ebb {
namespace {

constexpr std::array samplers = {MenuName{"DPM++ 2M", "k_dpmpp_2m"},
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

constexpr std::array schedules = {MenuName{"Automatic", "automatic"},
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

}  // namespace

std::span<const MenuName> sampler_menu() { return samplers; }
std::span<const MenuName> schedule_menu() { return schedules; }

}  // namespace ebb
