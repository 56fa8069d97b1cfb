#include "support/program.h"

namespace ebb::testing {

const std::string& program_path() {
  static const std::string path = EBB_PROGRAM;
  return path;
}

const std::string& rank_program_path() {
  static const std::string path = EBB_RANK_PROGRAM;
  return path;
}

}  // namespace ebb::testing
