#include "runtime/supporting_kernels.h"

#include <algorithm>

#include "base/error.h"
#include "ops/table.h"

namespace ebb {

static void sort_by_cost(std::vector<const Kernel*>& kernels, const Signature& s,
                         const Device& device) {
  if (kernels.size() < 2) return;
  std::map<const Kernel*, double> us;
  for (const Kernel* k : kernels) {
    require(k->cost, s.op->name, ": ", k->name, " states no cost beside others  ", s.text());
    us[k] = k->cost(s, device);
  }
  std::ranges::stable_sort(kernels, {}, [&](const Kernel* k) { return us.at(k); });
}

const std::vector<const Kernel*>& SupportingKernels::of(const Signature& s) {
  const auto [it, fresh] = known_.try_emplace(s.text());
  if (fresh) {
    it->second = kernels_of(s.op->name, device_.backend());
    std::vector<const Kernel*>& all = it->second;
    std::erase_if(all, [&](const Kernel* k) { return !k->supports(s, device_); });
    sort_by_cost(all, s, device_);
  }
  return it->second;
}

}  // namespace ebb
