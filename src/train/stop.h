// StopSignals: turns SIGINT and SIGTERM into a question that a loop asks between steps.
#pragma once

#include <csignal>

namespace ebb::train {

// While one lives, the first SIGINT or SIGTERM is only noted; one that comes a second or more later
// ends the process as usual. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The number of the signal that came, or 0.
  int requested() const;

 private:
  struct sigaction interrupt_before_, terminate_before_;
};

}  // namespace ebb::train
