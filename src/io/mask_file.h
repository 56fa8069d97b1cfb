// Masks as files.
#pragma once

#include <string>

#include "io/image.h"

namespace ebb::io {

// u8 [H,W,1] of a picture that says what is masked by its brightness. Other than in read_image(),
// what is transparent is black: strokes of white on a transparent layer are what they seem to be.
Tensor read_mask(const std::string& path, const ImageLimits& limits = {});

}  // namespace ebb::io
