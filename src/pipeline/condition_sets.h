// Runs whose steps do not all have the same conditions: control networks take part in some only.
#pragma once

#include <string>
#include <vector>

#include "pipeline/run_conditions.h"

namespace ebb {

// Of the conditions that a step has, in order.
std::vector<std::string> names_of(const RunConditions::Steps& steps);
bool changes_names(const RunConditions& conditions);
// The steps that have these conditions, and no others.
RunConditions with_names(RunConditions conditions, const std::vector<std::string>& names);
// In the order of the steps, the conditions of those that follow each other and have the same
// names, each with all steps of these names.
std::vector<RunConditions> parts_of(const RunConditions& conditions);
// With 0 for what a step lacks, as a control network of strength 0.
RunConditions completed(RunConditions conditions);

}  // namespace ebb
