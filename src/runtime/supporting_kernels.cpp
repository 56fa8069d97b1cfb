#include "runtime/supporting_kernels.h"

#include "ops/table.h"

namespace ebb {

const std::vector<const Kernel*>& SupportingKernels::of(const Signature& s) {
  const auto [it, fresh] = known_.try_emplace(s.text());
  if (fresh) {
    it->second = kernels_of(s.op->name, device_.backend());
    std::erase_if(it->second, [&](const Kernel* k) { return !k->supports(s, device_); });
  }
  return it->second;
}

}  // namespace ebb
