#include "diffusion/levels/flow_list.h"

#include "base/error.h"
#include "diffusion/levels/discretisation.h"

namespace ebb {

std::vector<double> flow_list(int64_t steps, double shift) {
  std::vector<double> out;
  for (int64_t i = 0; i < steps; ++i)
    out.push_back(shifted(1 - static_cast<double>(i) / static_cast<double>(steps), shift));
  return out;
}

void stretch_to(std::vector<double>& levels, double terminal) {
  require(terminal > 0 && terminal < 1, "schedule: terminal must lie in (0, 1) (", terminal, ")");
  if (levels.empty() || levels.back() == 1) return;
  const double factor = (1 - terminal) / (1 - levels.back());
  for (double& s : levels) s = 1 - (1 - s) * factor;
}

}  // namespace ebb
