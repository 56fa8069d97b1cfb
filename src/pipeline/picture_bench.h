// Benches of whole pictures: prompts, sampling and pixels, in a process that has made some.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/op_bench.h"

namespace ebb {

// "generate/name" of the cases; accelerators have more.
std::vector<std::string> picture_bench_names(const Device& device);

// Runs the cases whose name contains `filter`, with hashed weights: all pictures of a request of 20
// steps of DPM++ 2M with guidance, median of five; first_step_s is the time of the first request.
void bench_pictures(const Context& context, const std::string& filter,
                    const std::function<void(const BenchResult&)>& report);

}  // namespace ebb
