// What the metadata of a checkpoint says of the guidance that suits it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "io/tensor_file.h"

namespace ebb {

constexpr const char* guidance_key = "ebb.guidance";

// None where the file does not say it. Throws Error for what is no number from 0 to 100.
std::optional<double> suggested_guidance(const io::TensorFile& file);
// The same as metadata for another file; nothing where it does not say it.
std::map<std::string, std::string> guidance_metadata(const io::TensorFile& file);

}  // namespace ebb
