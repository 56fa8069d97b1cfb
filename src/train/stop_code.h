// Why a run ends, with the signal's number, as one number that ranks tell each other
// (RankReport::wish). 0: it goes on.
#pragma once

#include <optional>

#include "train/loop.h"

namespace ebb::train {

constexpr int stop_codes = 8;
static_assert(static_cast<int>(TrainResult::Stop::hook) + 1 < stop_codes);  // the last reason

inline double code_of(const std::optional<TrainResult::Stop>& why, int signal) {
  return why ? static_cast<int>(*why) + 1 + stop_codes * signal : 0;
}
inline std::optional<TrainResult::Stop> stop_of(double code) {
  if (code == 0) return {};
  return static_cast<TrainResult::Stop>(static_cast<int>(code) % stop_codes - 1);
}
inline int signal_of(double code) { return static_cast<int>(code) / stop_codes; }

}  // namespace ebb::train
