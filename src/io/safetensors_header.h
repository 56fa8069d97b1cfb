// The header of a safetensors file: its rules, shared by the reader and the writer.
#pragma once

#include <string>
#include <string_view>

#include "io/tensor_header.h"

namespace ebb::io {

constexpr int64_t safetensors_header_limit = 100'000'000;  // bytes; the format's own limit
constexpr int64_t safetensors_name_limit = 4096;           // bytes

// Checks `json`, the header's bytes, against the rules and the size of the data that follows.
TensorHeader parse_safetensors_header(std::string_view json, int64_t data_bytes,
                                      const std::string& file);

}  // namespace ebb::io
