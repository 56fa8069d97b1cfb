// A file of tests/golden.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "support/source_folder.h"

namespace ebb::testing {

inline nlohmann::json read_golden(const std::string& name) {
  const std::string path = source_folder() + "/tests/golden/" + name + ".json";
  std::ifstream in(path);
  require(in.good(), "golden: cannot read ", path);
  return nlohmann::json::parse(in);
}

}  // namespace ebb::testing
