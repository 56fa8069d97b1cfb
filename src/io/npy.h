// .npy files: one array, as NumPy writes it (its format 1.0).
#pragma once

#include <string>

#include "core/tensor.h"
#include "io/file.h"

namespace ebb::io {

// A host tensor of f32, i64 or u8, row-major. Replaces the file whole or not at all. Throws Error.
void write_npy(const std::string& path, const Tensor& t, Existing existing = Existing::replaced);

}  // namespace ebb::io
