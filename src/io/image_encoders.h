// The encoders behind encode_picture(), one a format that has no header of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace ebb::io {

// u8 [H,W,C], C = 1 or 3; `exif` with its prefix, or empty. Throws Error for sides above 65,535.
std::vector<uint8_t> encode_jpeg(const Tensor& image, std::span<const uint8_t> exif, int quality);
// `exif` without prefix, or empty. Throws Error for sides above 16,383.
std::vector<uint8_t> encode_webp(const Tensor& image, std::span<const uint8_t> exif, int quality);

}  // namespace ebb::io
