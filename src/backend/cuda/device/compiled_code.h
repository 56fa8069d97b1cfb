// The code of the fat binary, for the current device.
#pragma once

namespace ebb::cuda {

// False: the build has none for this GPU, and no kernel of ours can run on it.
bool has_compiled_code();

// The targets that the build was compiled for, as CMake takes them: "90a-real, 120-real".
const char* compiled_targets();

}  // namespace ebb::cuda
