// Where the time of a plan goes, kernel by kernel.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/plan.h"

namespace ebb {

// Equal steps of a plan: the same kernel with the same signature.
struct ProfileLine {
  std::string kernel, signature;
  int64_t steps = 0;
  double us = 0;  // of all of them together: each step's median over the runs
  Cost cost;      // likewise
};

// Runs the plan `runs` times, one step after the other (no side stream, no captured graph), with
// an event around each step. The longest lines come first.
std::vector<ProfileLine> profile_plan(Plan& plan, const NamedTensors& inputs, int runs);

// The kernels, then the `longest` lines: steps, time, share, rates.
std::string profile_text(std::span<const ProfileLine> lines, size_t longest);

}  // namespace ebb
