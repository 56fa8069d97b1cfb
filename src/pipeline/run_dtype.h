// The dtype of a run's matmuls and convolutions.
#pragma once

#include <string>

#include "core/device.h"
#include "runtime/weight_store.h"

namespace ebb {

// What `auto` means for a network with these weights, which may be null: f16 where most of them are
// stored so and the device is fast in it, else bf16 where the device is fast in that, else f32.
DType usual_dtype(const WeightStore* weights, const Device& device);

// Of a 16-bit dtype that was asked for and that the device is not fast in: what a user should know;
// "" otherwise.
std::string slow_dtype_text(DType dtype, const Device& device);

}  // namespace ebb
