// The decoders behind decode_image(), one a format. Each checks the limits before it allocates and
// returns the samples as they are; converting channels is common to all.
#pragma once

#include <span>
#include <string>

#include "io/image.h"

namespace ebb::io {

// u8 [H,W,C] with C = 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
Tensor decode_png(std::span<const uint8_t> bytes, const std::string& name,
                  const ImageLimits& limits);
Tensor decode_jpeg(std::span<const uint8_t> bytes, const std::string& name,
                   const ImageLimits& limits);
Tensor decode_webp(std::span<const uint8_t> bytes, const std::string& name,
                   const ImageLimits& limits);

void check_image_size(int64_t height, int64_t width, const std::string& name,
                      const ImageLimits& limits);

}  // namespace ebb::io
