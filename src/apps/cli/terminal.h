// What commands show while they work, on standard error.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "apps/cli/command.h"
#include "pipeline/load_model.h"
#include "runtime/context.h"

namespace ebb::cli {

// The device of the options and, if asked for, a tuner.
Context open_device(CommonOptions o);

// Says what the config of a file was guessed to be, where pictures hang on it: of one without
// metadata, and of one whose config lacks fields.
void say_guesses(const LoadedModel& model);

// One line that is written over on a terminal, each per cent or second, with an estimate of the
// time left; on a file or pipe a line each ten per cent.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  void show(double share);  // 0 to 1
  void finish();

 private:
  std::string what_;
  bool terminal_;
  int shown_ = -1;
  std::chrono::steady_clock::time_point start_, said_;
};

}  // namespace ebb::cli
