// The kernels of a device that compute a use of an op. Passes ask often, and networks repeat uses:
// equal ones are asked of the kernels once.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace ebb {

class SupportingKernels {
 public:
  explicit SupportingKernels(const Device& device) : device_(device) {}

  // Those of the least Kernel::cost first; none if the device has no kernel for it.
  const std::vector<const Kernel*>& of(const Signature& s);
  bool has(const Signature& s) { return !of(s).empty(); }

 private:
  const Device& device_;
  std::map<std::string, std::vector<const Kernel*>> known_;  // by signature
};

}  // namespace ebb
