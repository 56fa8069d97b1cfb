// fold_producers: contractions compute what makes their input, with weights for both.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph whose weights are prepared (passes/schedule/prepare.h). Where a contraction
// can fold the op that makes its input (Contraction::fold), as a convolution the upsampling of its
// images, one node reads the input of that op. The weights must depend on weights only: those for
// both are computed once. `supports(contraction, folded)`: the device has as good a kernel for the
// second.
Graph fold_producers(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                     const std::function<bool(const Signature&, const Signature&)>& supports);

}  // namespace ebb
