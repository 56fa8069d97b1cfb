// attention in bf16 on matrix tiles (AMX).
#pragma once

#include "ir/kernel.h"

namespace ebb::ops::cpu {

// Whether this machine has them, for attention without masks and bias.
bool amx_attention_supports(const Signature& s, const Device& device);
Program prepare_amx_attention(const Signature& s, const Tune& tune, Device& device);

}  // namespace ebb::ops::cpu
