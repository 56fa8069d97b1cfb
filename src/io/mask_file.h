// Masks as files.
#pragma once

#include <span>
#include <string>

#include "io/image.h"

namespace ebb::io {

// u8 [H,W,1] of a picture that says what is masked by its brightness. Other than in read_image(),
// what is transparent is black: strokes of white on a transparent layer are what they seem to be.
Tensor read_mask(const std::string& path, const ImageLimits& limits = {});

// The same of a file in memory; `name` is only for errors.
Tensor decode_mask(std::span<const uint8_t> bytes, const std::string& name,
                   const ImageLimits& limits = {});

}  // namespace ebb::io
