// The tables of all ops and kernels, made from the file system (cmake/plugins.cmake).
#pragma once

#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "ir/op.h"

namespace ebb {

const std::vector<const OpDef*>& all_ops();
const OpDef& find_op(std::string_view name);  // throws Error, suggests the nearest

// The kernels of `op` on a backend ("cpu", "cuda").
std::vector<const Kernel*> kernels_of(std::string_view op, std::string_view backend);
const std::vector<Kernel>& all_kernels(std::string_view backend);

}  // namespace ebb
