// Numbers as codes of 8 bits whose steps grow with them (Dettmers et al. 2021, arXiv:2110.02861,
// section 1.3; Dettmers 2016, arXiv:1511.04561): seven decades down from 1, of which each has half
// as many entries as the next larger one, evenly spread in it, and besides 0 and 1. Codes order
// numbers: of a signed map code 127 is 0, of an unsigned one code 0. Only the signed map has no -1.
#pragma once

#include "ir/expr.h"

namespace ebb::train {

enum class DynamicMap : uint8_t { with_sign, without_sign };

// The number of a code 0, 1, ..., 255.
Scalar decoded(const Scalar& code, DynamicMap map);
// The code of the nearest entry of x, from -1 or 0 to 1.
Scalar encoded(const Scalar& x, DynamicMap map);

}  // namespace ebb::train
