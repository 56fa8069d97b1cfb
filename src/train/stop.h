// StopSignals: turns SIGINT, SIGTERM and SIGHUP into a flag that a loop polls between steps.
#pragma once

#include <array>
#include <csignal>
#include <string_view>

namespace ebb::train {

// While an instance exists, the first SIGINT, SIGTERM or SIGHUP (a closed terminal) is only
// recorded, and `said` written as a line on standard error at once. A further one within a second
// of the first counts as the same request, a later one ends the process as usual. Signals that were
// ignored (SIGINT in background jobs of scripts) stay ignored. One instance at a time.
class StopSignals {
 public:
  explicit StopSignals(std::string_view said);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The number of the signal that came, or 0.
  int requested() const;

 private:
  static constexpr std::array signals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, signals.size()> before_;
};

}  // namespace ebb::train
