#include <algorithm>

#include "base/names.h"
#include "train/optimizer.h"

#define X(name)                        \
  namespace ebb::train::optimizers {   \
  const ebb::train::Optimizer& name(); \
  }
#include "ebb/gen/optimizers.inc"
#undef X

namespace ebb::train {

const std::vector<const Optimizer*>& all_optimizers() {
  static const std::vector<const Optimizer*> all = {
#define X(name) &optimizers::name(),
#include "ebb/gen/optimizers.inc"
#undef X
  };
  return all;
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> out;
  for (const Optimizer* o : all_optimizers()) out.push_back(o->name);
  return out;
}

const Optimizer& find_optimizer(std::string_view name) {
  for (const Optimizer* o : all_optimizers())
    if (o->name == name) return *o;
  fail_unknown("optimizer: unknown", std::string(name), optimizer_names());
}

bool is_optimizer_state(std::string_view tensor) {
  return std::ranges::any_of(all_optimizers(), [&](const Optimizer* o) {
    return std::ranges::any_of(o->states,
                               [&](const std::string& s) { return tensor.starts_with(s); });
  });
}

}  // namespace ebb::train
