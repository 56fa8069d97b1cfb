// The images that `ebb train` reads, and what it says of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/config.h"
#include "train/validation.h"

namespace ebb::cli {

struct TrainData {
  train::HeldOut images;
  int64_t count = 0;  // of images, with those held out of them
  std::string text;   // what is trained on, for people
  std::vector<std::string> class_names;
};

// With the threads of this process, at most so many where their number is not given.
train::TrainConfig on_threads(train::TrainConfig config, int64_t own, int64_t most = 65536);

// Says on standard error what was read and left out. None if a signal asked for the end, of which
// it tells, also as JSON; `signal` gets its number. Throws Error.
std::optional<TrainData> open_train_data(const train::TrainConfig& config, bool json, int& signal);

// "32x32x3": width, height, channels.
std::string size_text(const Shape& image);

}  // namespace ebb::cli
