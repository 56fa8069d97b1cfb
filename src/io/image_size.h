// The size of a picture without its pixels.
#pragma once

#include <span>
#include <string>

#include "core/shape.h"
#include "io/image.h"

namespace ebb::io {

// [H,W] of the picture that decode_image() makes, by the file's header alone. Throws Error for what
// is no picture, broken headers and exceeded limits.
Shape image_size(std::span<const uint8_t> bytes, const std::string& name,
                 const ImageLimits& limits = {});

}  // namespace ebb::io
