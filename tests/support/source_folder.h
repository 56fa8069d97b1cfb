// Where the repository is: golden files are read from there.
#pragma once

#include <string>

namespace ebb::testing {

// As compiled in, or the environment's EBB_SOURCE_DIR: the program may run on another machine.
std::string source_folder();

}  // namespace ebb::testing
