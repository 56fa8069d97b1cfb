// Rotary position embeddings as PyTorch's libraries call them.
#pragma once

#include "base/enum_field.h"
#include "functions/function.h"

namespace ebb::functions {

// Pairs are elements 2 i and 2 i + 1, or i and i + P.
enum class RotationStyle : uint8_t { interleaved, half };
constexpr ValueNames<2> value_names(RotationStyle) { return {"style", {"interleaved", "half"}}; }

struct RotationRule {
  RotationStyle style = RotationStyle::interleaved;
  bool inverse = false;
};

// x [B,S,...,D] rotated (Su et al. 2021), as ops::rope does. cos and sin are [S,P] or [B|1,S,P], a
// number a pair, or with 2 P = D of them a number an element, the same for both of a pair
// (diffusers, transformers); dims of size 1 may stand between S and the last.
Value rotated(Value x, Value cos, Value sin, const RotationRule& rule);

}  // namespace ebb::functions
