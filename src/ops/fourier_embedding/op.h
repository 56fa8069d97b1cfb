// fourier_embedding: [cos(2 pi t f), sin(2 pi t f)] at given frequencies (Tancik et al. 2020).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& fourier_embedding();
}

Value fourier_embedding(Value t, Value freqs);  // t [N], freqs [d] -> f32 [N,2d]

}  // namespace ebb::ops
