// The header of a safetensors file: its rules, shared by the reader and the writer.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace ebb::io {

constexpr int64_t safetensors_header_limit = 100'000'000;  // bytes; the format's own limit
constexpr int64_t safetensors_name_limit = 4096;           // bytes

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by place in the data
  std::map<std::string, std::string> metadata;
};

// Checks `json`, the header's bytes, against the rules and the size of the data that follows.
SafetensorsHeader parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                           const std::string& file);

// The file's name of a dtype of ours: "BF16".
std::string_view safetensors_dtype(DType dtype);

}  // namespace ebb::io
