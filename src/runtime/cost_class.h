// Which kernels a device has for a use, and whether two uses are served equally well.
#pragma once

#include <vector>

#include "core/device.h"
#include "ir/kernel.h"

namespace ebb {

// In order of preference.
std::vector<const Kernel*> supporting_kernels(const Signature& s, const Device& device);

// Whether the preferred kernel of one signature is also that of the other, perhaps under another
// op.
bool same_cost_class(const Signature& a, const Signature& b, const Device& device);

// Whether the preferred kernels of two ops are of one kind: their names differ by the ops' names.
bool same_family(const Signature& a, const Signature& b, const Device& device);

}  // namespace ebb
