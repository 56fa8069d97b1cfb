// The decoders behind decode_image(), one a format. Each checks the limits before it allocates and
// returns the samples as they are with what the file says about them; channels, orientation and
// colour are common to all.
#pragma once

#include <span>
#include <string>

#include "io/image.h"
#include "io/image_metadata.h"

namespace ebb::io {

DecodedImage decode_png(std::span<const uint8_t> bytes, const std::string& name,
                        const ImageLimits& limits);
DecodedImage decode_jpeg(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits);
DecodedImage decode_webp(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits);

// What a file of a format that decode_image() knows says beside its pixels. Throws Error.
ImageMetadata metadata_of(std::span<const uint8_t> bytes, const std::string& name);
bool is_png(std::span<const uint8_t> bytes);

void check_image_size(int64_t height, int64_t width, const std::string& name,
                      const ImageLimits& limits);

}  // namespace ebb::io
