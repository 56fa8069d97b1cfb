#include "runtime/supporting_kernels.h"

#include <algorithm>

#include "ops/table.h"

namespace ebb {

static void sort_by_estimate(std::vector<const Kernel*>& kernels, const Signature& s,
                             const Device& device) {
  if (kernels.size() < 2) return;
  const Cost cost = cost_of(s);
  const Peaks peaks = device.peaks();
  const bool narrow = !s.in.empty() && size_of(s.in[0].dtype) == 2;
  const double flops = narrow ? peaks.flops_16 : peaks.flops_f32;
  std::ranges::stable_sort(kernels, {}, [&](const Kernel* k) {  // seconds
    return std::max(cost.flops / (flops * k->efficiency.flops),
                    cost.bytes / (peaks.bytes * k->efficiency.bytes));
  });
}

const std::vector<const Kernel*>& SupportingKernels::of(const Signature& s) {
  const auto [it, fresh] = known_.try_emplace(s.text());
  if (fresh) {
    it->second = kernels_of(s.op->name, device_.backend());
    std::vector<const Kernel*>& all = it->second;
    std::erase_if(all, [&](const Kernel* k) { return !k->supports(s, device_); });
    sort_by_estimate(all, s, device_);
  }
  return it->second;
}

}  // namespace ebb
