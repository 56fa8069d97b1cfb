// raise: an exception that PyTorch catches.
//
// Where this library has a C++ runtime of its own linked in, as in the Python wheel, its exceptions
// must not leave it: two runtimes know nothing of each other's unwinders and counts of exceptions.
// So an exception is made and thrown by the runtime of the process.
#pragma once

namespace ebb::torch {

// Throws a std::runtime_error of the process's libstdc++, or of ours if it has loaded none. To be
// called by functions that have nothing to undo.
[[noreturn]] void raise(const char* message);

}  // namespace ebb::torch
