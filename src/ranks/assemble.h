// How the ranks of a run find each other: rank 0 listens, each of the others connects to it, and
// when all have come, all know who they are.
#pragma once

#include <vector>

#include "ranks/frames.h"
#include "ranks/launch.h"
#include "ranks/watch.h"

namespace ebb::ranks {

struct Assembly {
  std::vector<Member> members;  // by rank
  // Of rank 0: one to each rank, none (closed) at 0. Of others: one, to rank 0.
  std::vector<Connection> connections;
};

// Throws Error: ranks are missing when the time is over (names them), two have the same number, or
// they count differently. What is no rank of this run is turned away and changes nothing.
Assembly assemble(const Launch& launch, const Limits& limits, Socket listener);
// Rank 0's, where the launch has none to inherit.
Socket listener_of(const Launch& launch);

// The lengths of messages.
constexpr size_t most_text = size_t{4} << 20;    // of a rank's text of a gather, or error
constexpr size_t most_texts = size_t{64} << 20;  // of all

}  // namespace ebb::ranks
