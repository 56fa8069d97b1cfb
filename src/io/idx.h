// IDX files (the format of MNIST and Fashion-MNIST): big-endian sizes, then unsigned bytes.
#pragma once

#include <string>

#include "core/tensor.h"

namespace ebb::io {

// u8 of the file's shape (1 to 4 dims). gzip is recognised by its first bytes. Throws Error for
// other element types, broken headers, and files that are shorter or longer than the header says.
Tensor read_idx(const std::string& path);

// True if the file starts like an IDX file of unsigned bytes with `rank` dims, gzipped or not.
bool is_idx(const std::string& path, int64_t rank);

}  // namespace ebb::io
