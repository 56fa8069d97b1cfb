// Prints kernels as PTX, the only place that knows its instructions.
#pragma once

#include <string>

#include "codegen/builder.h"

namespace ebb::cuda {

// What chips of a capability (75, 80, 90) can do.
codegen::Target target_of(int capability);

// The text of a kernel, as the driver takes it. Its one parameter is the parameter struct.
std::string emit_ptx(const codegen::Kernel& kernel, int capability);

}  // namespace ebb::cuda
