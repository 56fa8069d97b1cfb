#include "support/golden_file.h"

#include <fstream>

#include "base/error.h"
#include "support/source_folder.h"

namespace ebb::testing {

nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  require(in.good(), "golden: cannot read ", path);
  return nlohmann::json::parse(in);
}

nlohmann::json read_golden(const std::string& name) {
  return read_json(source_folder() + "/tests/golden/" + name + ".json");
}

}  // namespace ebb::testing
