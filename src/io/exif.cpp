// EXIF orientation. TIFF 6.0, section 2; EXIF 2.32, 4.6.4.
#include <algorithm>

#include "io/image_metadata.h"
#include "io/tiff.h"

namespace ebb::io {

int exif_orientation(std::span<const uint8_t> exif, std::string& problem) {
  const std::optional<Tiff> file = Tiff::open(exif);
  if (!file) {
    problem = "EXIF data are no TIFF file";
    return 1;
  }
  const Tiff& tiff = *file;
  const auto first = tiff.number(4, 4);
  const auto entries = first ? tiff.number(*first, 2) : std::nullopt;
  for (uint32_t i = 0; entries && i < *entries; ++i) {
    constexpr uint32_t orientation = 0x0112, type_short = 3;
    const size_t at = size_t{*first} + 2 + size_t{12} * i;
    const auto tag = tiff.number(at, 2), type = tiff.number(at + 2, 2);
    const auto count = tiff.number(at + 4, 4), value = tiff.number(at + 8, 2);
    if (!value) break;
    if (*tag != orientation) continue;
    if (*type == type_short && *count == 1 && *value <= 8) {
      return std::max(1, static_cast<int>(*value));  // 0: not known
    }
    problem = "EXIF orientation is not 1 to 8";
    return 1;
  }
  if (!entries || !tiff.number(size_t{*first} + 2 + size_t{12} * *entries, 0))
    problem = "EXIF data end too early";
  return 1;
}

Tensor upright(const Tensor& image, int orientation) {
  if (orientation == 1) return image;
  const int64_t h = image.shape()[0], w = image.shape()[1], c = image.shape()[2];
  const bool transposed = orientation >= first_transposed;
  // Where row 0 and column 0 of the stored picture are seen: 1 top left, 2 top right, 3 bottom
  // right, 4 bottom left, 5 left top, 6 right top, 7 right bottom, 8 left bottom.
  const bool flip_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  const bool flip_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const int64_t oh = transposed ? w : h, ow = transposed ? h : w;
  Tensor out(DType::u8, {oh, ow, c});
  const uint8_t* in = image.span<uint8_t>().data();
  uint8_t* o = out.span<uint8_t>().data();
  for (int64_t y = 0; y < oh; ++y)
    for (int64_t x = 0; x < ow; ++x) {
      const int64_t down = flip_y ? oh - 1 - y : y, right = flip_x ? ow - 1 - x : x;
      const int64_t from = transposed ? right * w + down : down * w + right;
      std::copy_n(in + from * c, c, o + (y * ow + x) * c);
    }
  return out;
}

}  // namespace ebb::io
