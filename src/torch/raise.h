// raise: an exception that PyTorch catches.
//
// Where this library has a C++ runtime of its own linked in, as in the Python wheel, an exception of
// that runtime must not leave the library: the unwinders and the counts of exceptions of two
// runtimes know nothing of each other. So it is made and thrown by the process's.
#pragma once

namespace ebb::torch {

// Throws a std::runtime_error of the process's libstdc++, or of ours if it has loaded none. To be
// called by functions that have nothing to undo.
[[noreturn]] void raise(const char* message);

}  // namespace ebb::torch
