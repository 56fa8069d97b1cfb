// What a lowered graph costs to run, in a page: launches and bytes by kernel.
#pragma once

#include <string>

#include "runtime/lowering.h"

namespace ebb {

// A line for each kernel that a plan of `g` would prefer, by name: launches, the least megabytes
// that they move and their GFLOP; the sums first. Needs no device: l.device may be
// described only.
std::string launch_table(const Graph& g, Lowering& l);

}  // namespace ebb
