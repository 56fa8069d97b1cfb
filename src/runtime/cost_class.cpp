#include "runtime/cost_class.h"

#include <string_view>

#include "ir/op.h"
#include "ops/table.h"

namespace ebb {

std::vector<const Kernel*> supporting_kernels(const Signature& s, const Device& device) {
  std::vector<const Kernel*> all = kernels_of(s.op->name, device.backend());
  std::erase_if(all, [&](const Kernel* k) { return !k->supports(s, device); });
  return all;
}

namespace {

// The name of the preferred kernel; "": there is none.
std::string_view preferred(const Signature& s, const Device& device) {
  const auto all = supporting_kernels(s, device);
  return all.empty() ? "" : all[0]->name;
}

}  // namespace

bool same_cost_class(const Signature& a, const Signature& b, const Device& device) {
  const std::string_view name = preferred(a, device);
  return !name.empty() && name == preferred(b, device);
}

bool same_family(const Signature& a, const Signature& b, const Device& device) {
  const std::string_view x = preferred(a, device), y = preferred(b, device);
  return x.starts_with(a.op->name) && y.starts_with(b.op->name) &&
         x.substr(a.op->name.size()) == y.substr(b.op->name.size());
}

}  // namespace ebb
