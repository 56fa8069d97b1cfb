// What a lowered graph costs to run, in a page: launches and bytes by kernel;
// and launch by launch.
#pragma once

#include <string>

#include "runtime/lowering.h"

namespace ebb {

// A line for each kernel that a plan of `g` would prefer, by name: launches, the least megabytes
// that they move and their GFLOP; the sums first. Needs no device: l.device may be
// described only.
std::string launch_table(const Graph& g, Lowering& l);

// A line for each of them, in their order: the kernel and its use, with epilogue and views, and
// whether it runs on a side stream or its copy is saved; then the updates that are not in place and
// the size of the arena. As Plan::text() but for what depends on the machine: workspaces.
std::string launch_list(const Graph& g, Lowering& l);

}  // namespace ebb
