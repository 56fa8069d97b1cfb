// Who a rank is, and how far it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <ostream>
#include <span>
#include <string>

namespace ebb::ranks {

struct Member {
  int64_t rank = 0;
  std::string host;
  int64_t pid = 0;
};

// How many of them are on the host of this one.
inline int64_t ranks_beside(std::span<const Member> all, int64_t rank) {
  const std::string& host = all[static_cast<size_t>(rank)].host;
  return std::ranges::count(all, host, &Member::host);
}

// "rank 3 (host gpu07, pid 4711)"
inline std::ostream& operator<<(std::ostream& out, const Member& m) {
  return out << "rank " << m.rank << " (host " << m.host << ", pid " << m.pid << ")";
}

// What a rank's main thread is at, in the order in which a step passes through them.
enum class Phase : uint8_t {
  start,  // opens data, compiles; as long as it takes
  join,   // makes the link of the devices
  batch,  // work of this rank that the others wait for
  step,   // collective work
  alone,  // rank 0 writes a checkpoint or samples, and the others wait; as long as it takes
};
constexpr size_t phases = 5;

struct Progress {
  int64_t step = 0;
  Phase phase = Phase::start;
  double seconds = 0;                    // in this phase
  std::array<double, phases> longest{};  // seconds of the longest of each but the first; 0: none
};

}  // namespace ebb::ranks
