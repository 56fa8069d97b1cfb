// Files of tests/golden.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ebb::testing {

// tests/golden/<name>.json
nlohmann::json read_golden(const std::string& name);

// Any JSON file. Compiled once: a parser takes a second of every file that instantiates it.
nlohmann::json read_json(const std::string& path);

}  // namespace ebb::testing
