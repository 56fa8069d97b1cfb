#include "pipeline/condition_sets.h"

#include <algorithm>

namespace ebb {

std::vector<std::string> names_of(const RunConditions::Steps& steps) {
  std::vector<std::string> out;
  for (const auto& [name, value] : steps.values()) out.push_back(name);
  return out;
}

bool changes_names(const RunConditions& conditions) {
  const auto& all = conditions.steps;
  return std::ranges::any_of(
      all, [&](const RunConditions::Steps& s) { return names_of(s) != names_of(all[0]); });
}

RunConditions with_names(RunConditions conditions, const std::vector<std::string>& names) {
  std::erase_if(conditions.steps,
                [&](const RunConditions::Steps& s) { return names_of(s) != names; });
  return conditions;
}

std::vector<RunConditions> parts_of(const RunConditions& conditions) {
  std::vector<RunConditions> out;
  const auto& all = conditions.steps;
  for (size_t i = 0; i < all.size(); ++i)
    if (i == 0 || names_of(all[i]) != names_of(all[i - 1]))
      out.push_back(with_names(conditions, names_of(all[i])));
  return out;
}

RunConditions completed(RunConditions conditions) {
  const std::vector<RunConditions::Steps> given = conditions.steps;
  for (RunConditions::Steps& s : conditions.steps)
    for (const RunConditions::Steps& other : given)
      for (size_t b = 0; b < s.branches.size(); ++b)
        for (const auto& [name, value] : other.branches[b])
          if (!s.branches[b].contains(name))
            s.branches[b].emplace(name, Tensor(value.dtype(), value.shape()));
  return conditions;
}

}  // namespace ebb
