// The hashed tensors of golden tests.
#pragma once

#include "nn/hashed_weights.h"

namespace ebb::testing {

using nn::hash_value, nn::hashed, nn::hashed_file_tensor, nn::hashed_input, nn::hashed_weight,
    nn::projection;

}  // namespace ebb::testing
