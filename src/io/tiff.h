// Numbers of a TIFF file (TIFF 6.0, section 2), which EXIF data are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace ebb::io {

// "Exif\0\0", which stands before the file in JPEG and sometimes elsewhere.
constexpr std::string_view exif_prefix("Exif\0\0", 6);

// A file in its byte order; nothing outside of it.
struct Tiff {
  std::span<const uint8_t> bytes;
  bool little = false;

  // Without the prefix of EXIF data; none where the header is not that of a TIFF file.
  static std::optional<Tiff> open(std::span<const uint8_t> exif) {
    const auto starts_with = [&](std::string_view text) {
      return exif.size() >= text.size() && std::equal(text.begin(), text.end(), exif.begin());
    };
    if (starts_with(exif_prefix)) exif = exif.subspan(exif_prefix.size());
    const Tiff tiff{exif, starts_with("II")};
    if ((!tiff.little && !starts_with("MM")) || tiff.number(2, 2) != 42u) return std::nullopt;
    return tiff;
  }

  std::optional<uint32_t> number(size_t at, size_t size) const {
    if (at > bytes.size() || size > bytes.size() - at) return std::nullopt;
    uint32_t v = 0;
    for (size_t i = 0; i < size; ++i)
      v |= uint32_t{bytes[at + i]} << 8 * (little ? i : size - 1 - i);
    return v;
  }
};

}  // namespace ebb::io
