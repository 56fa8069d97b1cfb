// A bench of LoRAs: what another strength costs until a network's weights are ready.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/op_bench.h"

namespace ebb {

std::vector<std::string> lora_bench_names();
// Of all attention and feed-forward layers of a U-Net with weights in bf16, rank 32: `us` is the
// median of other strengths, `first_step_s` the time for the first one, which compiles. Throws
// Error.
void bench_loras(const Context& context, const std::string& filter,
                 const std::function<void(const BenchResult&)>& report);

}  // namespace ebb
