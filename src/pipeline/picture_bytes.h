// The bytes of finished pictures.
#pragma once

#include <string_view>

#include "core/tensor.h"

namespace ebb {

// u8 of f32 in [-1,1], as the dialect's program has them: a1111 and comfy cut fractions off, others
// round.
Tensor picture_bytes(const Tensor& images, std::string_view dialect);

}  // namespace ebb
