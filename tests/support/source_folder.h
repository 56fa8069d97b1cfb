// Where the repository is: golden files are read from there.
#pragma once

#include <cstdlib>
#include <string>

namespace ebb::testing {

// As compiled in, or the environment's EBB_SOURCE_DIR: the program may run on another machine.
inline std::string source_folder() {
  const char* other = std::getenv("EBB_SOURCE_DIR");
  return other ? other : EBB_SOURCE_DIR;
}

}  // namespace ebb::testing
