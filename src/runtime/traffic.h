// What a rank sends to others in a run of a plan.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/graph.h"

namespace ebb {

// Of the collectives of an op.
struct Traffic {
  int64_t collectives = 0;
  double bytes = 0;  // that a rank sends
};
// By op. Bytes are those of rings, which no way to do them is below.
std::map<std::string, Traffic> traffic_of(const Graph& lowered, int64_t ranks);
// "a rank sends 13.1 MB in 4 collectives: all_gather 2 (4.4 MB), ...".
std::string text_of(const std::map<std::string, Traffic>& traffic);
Traffic sum_of(const std::map<std::string, Traffic>& traffic);

}  // namespace ebb
