// How the work of kernels is cut: rounding up, and what writers and layouts of generated kernels
// share.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace ebb::cuda {

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Elements of a thread's vector: 16 bytes of the widest of the tensors that have one an element.
int vector_of(const std::vector<DType>& full);
// Vectors that a thread works on at once: enough loads under way, code that compiles fast. `cost`:
// instructions of a vector.
int steps_of(int loads, int cost);

// By result: whether it is rounded to 16 bits, which forgives less exact functions.
std::vector<bool> narrow_results(const std::vector<DType>& out);

}  // namespace ebb::cuda
