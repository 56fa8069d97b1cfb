// Lists of levels of flow models: equal times, shifted.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb {

// `steps` equal times from 1 to 1 / steps, shifted.
std::vector<double> flow_list(int64_t steps, double shift);

// Levels stretched so that the last one is `terminal`: distances to 1 are multiplied.
void stretch_to(std::vector<double>& levels, double terminal);

}  // namespace ebb
