// Benches of pipelines: what a second request of another batch waits for before its first step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/op_bench.h"

namespace ebb {

// "second_plan/name" of the cases.
std::vector<std::string> pipeline_bench_names();

// Runs the cases whose name contains `filter`: the time in which a pipeline whose model is on the
// device compiles the plans of three more batches, median; on accelerators first_step_s is that of
// one more whole request, of one step.
void bench_pipelines(const Context& context, const std::string& filter,
                     const std::function<void(const BenchResult&)>& report);

}  // namespace ebb
