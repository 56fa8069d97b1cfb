// The decoders behind decode_image(), one a format. Each checks the limits before it allocates and
// returns the samples as they are with what the file says about them; channels, orientation and
// colour are common to all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/image.h"
#include "io/image_metadata.h"

namespace ebb::io {

DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& name,
                        const ImageLimits& limits);
DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits);
DecodedImage decode_webp(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits);

// Of the pixels as they are stored. Throw Error for broken headers.
struct ImageHeader {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> exif;
};
ImageHeader png_header(std::span<const uint8_t> bytes, const std::string& name);
ImageHeader jpeg_header(std::span<const uint8_t> bytes, const std::string& name);
ImageHeader webp_header(std::span<const uint8_t> bytes, const std::string& name);

// What files say beside their pixels, which are not decoded. Throw Error for files that are broken
// in front of them or cut short.
ImageMetadata jpeg_metadata(std::span<const uint8_t> bytes, const std::string& name);
ImageMetadata webp_metadata(std::span<const uint8_t> bytes, const std::string& name);
// Of a file of one of these two formats.
ImageMetadata metadata_of(std::span<const uint8_t> bytes, const std::string& name);
bool is_png(std::span<const uint8_t> bytes);

void check_image_size(int64_t height, int64_t width, const std::string& name,
                      const ImageLimits& limits);

}  // namespace ebb::io
