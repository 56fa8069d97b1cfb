// Epilogues of matmul behind the GEMM, as passes over its results.
#pragma once

#include "ir/kernel.h"
#include "ops/prim/epilogue_form.h"

namespace ebb::ops::cuda {

// Uses whose form is an activation, a gradient of one or a gate; of any float dtype.
Kernel matmul_activated();
// A use whose form is a product scaled and added to a residual.
Program matmul_scaled(const Signature& s, Device& d);

// The call of with_bias_alone(), whose result is at `z`.
Call call_of_product(const EpilogueForm& e, const Call& c, void* z);

}  // namespace ebb::ops::cuda
