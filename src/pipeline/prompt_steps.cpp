#include "pipeline/prompt_steps.h"

#include <algorithm>
#include <array>

#include "diffusion/solver/sampler_names.h"

namespace ebb {

int64_t evaluations_counted(const GenerateOptions& options) {
  constexpr std::array of_second_order = {
      "heun", "dpm_2", "dpm_2_ancestral", "dpmpp_2s_ancestral", "dpmpp_sde", "restart"};
  const bool twice =
      options.dialect == "a1111" && std::ranges::any_of(of_second_order, [&](const char* name) {
        return means_sampler(name, options.sampler);
      });
  return twice ? 2 : 1;
}

}  // namespace ebb
