// Metadata of image files (EXIF orientation, ICC profile), as decode_image() applies it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace ebb::io {

// The gamma and primaries of a PNG without a profile: the exponent from samples to light, 0 for the
// curve of sRGB, and the chromaticities x, y of white, red, green and blue.
struct Primaries {
  double gamma = 0;
  double xy[8] = {0.3127, 0.3290, 0.64, 0.33, 0.30, 0.60, 0.15, 0.06};
};

struct ImageMetadata {
  std::vector<uint8_t> exif;           // TIFF data, perhaps behind "Exif\0\0"
  std::vector<uint8_t> icc;            // a colour profile
  std::optional<Primaries> primaries;  // where there is no profile and it is not sRGB
  std::string broken_icc;              // not empty: there is a profile that cannot be put together
};

// A decoder's result: u8 [H,W,C] with C = 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
struct DecodedImage {
  Tensor pixels;
  ImageMetadata metadata;
};

// The orientation tag (0x0112) of EXIF data, 1 to 8: how the stored pixels lie. 1, upright, where
// there is none. Data that cannot be read give 1 and say why in `problem`.
int exif_orientation(std::span<const uint8_t> exif, std::string& problem);

// The picture upright: u8 [H,W,C], transposed for 5 to 8.
constexpr int first_transposed = 5;
Tensor upright(const Tensor& image, int orientation);

// The picture in sRGB, where the metadata name another colour space with curves and a matrix (all
// cameras, phones and screens have such) or a grey curve; the same where that is sRGB within a
// level of 255. Otherwise the picture as it is and the reason in `problem`. Light outside of sRGB
// is cut off.
Tensor to_srgb(const Tensor& image, const ImageMetadata& metadata, std::string& problem);

}  // namespace ebb::io
