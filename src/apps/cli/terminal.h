// Progress output of commands, on standard error.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.h"
#include "base/seed.h"
#include "pipeline/load_model.h"
#include "runtime/context.h"

namespace ebb::cli {

// `described`: also a GPU that is not here, cuda:h200, for which graphs can be lowered.
enum class Devices : uint8_t { here, described };
// The device of the options and, if requested, a tuner. Throws Error.
Context open_device(CommonOptions o, Devices which = Devices::here);

// What `run` gives once all that it printed is out; of an exception, which is told, that of errors.
int exit_code(const std::function<int()>& run);

// One line on standard output. Bytes that are no UTF-8, as file names may have, become U+FFFD.
void print_json(const nlohmann::ordered_json& json);

// A line each on standard error, "warning: ...".
void say_warnings(const std::vector<std::string>& warnings);

// Tells a seed that was drawn: the same run can be made again.
void say_drawn(const DrawableSeed& seed);

// Says what the config of a file was guessed to be, where pictures hang on it: of one without
// metadata, and of one whose config lacks fields.
void say_guesses(const LoadedModel& model);

// One line, rewritten on a terminal every per cent or second, with an estimate of the remaining
// time; on a file or pipe a line every ten per cent.
class ProgressLine {
 public:
  explicit ProgressLine(std::string what);
  void show(double share);  // 0 to 1
  // `what` is done now; `seconds_left` negative: not known.
  void show(double share, std::string_view what, double seconds_left);
  void finish();

 private:
  std::string what_;
  bool terminal_;
  int shown_ = -1;
  std::chrono::steady_clock::time_point start_, said_;
};

// A warning for each file whose weights are used in place and which was written to since it was
// opened, once: to be called while they are used. It stands below the line, if there is one.
void say_changed_files(ProgressLine* over);

}  // namespace ebb::cli
