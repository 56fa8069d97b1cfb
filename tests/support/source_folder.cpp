#include "support/source_folder.h"

#include <cstdlib>

namespace ebb::testing {

std::string source_folder() {
  const char* other = std::getenv("EBB_SOURCE_DIR");
  return other ? other : EBB_SOURCE_DIR;
}

}  // namespace ebb::testing
