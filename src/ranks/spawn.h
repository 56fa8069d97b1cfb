// The ranks of one host as copies of one process: what --gpus does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ebb::ranks {

struct Copies {
  int64_t ranks = 2;
  std::string program = "/proc/self/exe";
  std::vector<std::string> arguments;  // from the program's name on
  // Those that are still there so many seconds after one ended by a fault are killed: they may be
  // stopped. They end themselves long before otherwise, but may have a file to finish.
  double grace = 40;
};

// Starts the copies, each with variables from which launch_of() makes its Launch, and a socket at
// which rank 0 listens already; waits for all. A signal that asks this process to end is passed on
// to all, unless they get it from their terminal as well. They end with this process, if it is
// killed. Returns the first exit code of theirs that is not 0, or 128 and the number of the signal
// that killed one. Throws Error if one cannot be started. Says nothing itself.
int run_copies(const Copies& copies);

}  // namespace ebb::ranks
