// raise: an exception that PyTorch catches.
//
// Where this library has a C++ runtime of its own linked in, as in the Python wheel, exceptions
// must not cross from one runtime's code to another's, torch's or glibc's (std::call_once): two
// unwinders know nothing of each other, and abort. So an exception is made and thrown by the
// runtime of the process.
#pragma once

namespace ebb::torch {

// Throws a std::runtime_error of the process's libstdc++, or of ours if it has loaded none. To be
// called by functions that have nothing to undo.
[[noreturn]] void raise(const char* message);

}  // namespace ebb::torch
