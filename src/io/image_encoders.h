// The encoders behind encode_picture(), one a format that has no header of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace ebb::io {

// Pixels a side that files of the formats hold: by its library, by the format, by libpng's usual
// limit, which readers have.
constexpr int64_t jpeg_side = 65500, webp_side = 16383, png_side = 1'000'000;

// u8 [H,W,C], C = 1 or 3; `exif` with its prefix, or empty. Throws Error for larger sides.
std::vector<uint8_t> encode_jpeg(const Tensor& image, std::span<const uint8_t> exif, int quality);
// `exif` without prefix, or empty. Throws Error for larger sides.
std::vector<uint8_t> encode_webp(const Tensor& image, std::span<const uint8_t> exif, int quality);

}  // namespace ebb::io
