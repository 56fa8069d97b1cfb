// register_functions: ebb's functions as operators of PyTorch.
#pragma once

#include <string>

namespace ebb::torch {

// Gives the operators of `space`, which Python has defined by schema(), their kernels for the
// dispatch key "CUDA" or "CPU". Both stay for the life of the process. Throws Error.
void register_functions(const std::string& space, const std::string& key);

}  // namespace ebb::torch
