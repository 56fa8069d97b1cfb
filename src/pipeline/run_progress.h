// RunMeter: the progress of a run of several stages as one share, with the time that is left.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace ebb {

enum class Stage : uint8_t { text, encoding, sampling, decoding };
constexpr size_t stage_count = 4;
std::string_view name_of(Stage stage);

struct RunProgress {
  Stage stage = Stage::text;
  double of_stage = 0, of_run = 0;  // what is done, 0 to 1
  // Of the run; negative: not known, as the stage with the most work has not run for long enough:
  // beyond what it told first, a second or a two-hundredth of it.
  double seconds_left = -1;
};

// How much work each stage is, in any unit: evaluations of the denoiser, roughly.
using StageWork = std::array<double, stage_count>;

class RunMeter {
 public:
  // `tells` returns false to stop.
  RunMeter(const StageWork& work, std::function<bool(const RunProgress&)> tells);

  // A stage is done to this share; stages may alternate, shares do not fall. Throws Cancelled.
  void show(Stage stage, double share);
  // Tells again what it told last, in the midst of it. Throws Cancelled.
  void poll() { show(stage_, done_[static_cast<size_t>(stage_)]); }
  // The time spent so far, between the calls of show() of a stage and the next ones.
  double seconds(Stage stage) const { return seconds_[static_cast<size_t>(stage)]; }

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_left() const;

  StageWork work_;
  std::function<bool(const RunProgress&)> tells_;
  Stage stage_ = Stage::text;  // shown last
  std::array<double, stage_count> done_ = {}, seconds_ = {};
  // What a stage had done and spent when it first told of something done: compilation and the first
  // reading of weights lie before.
  std::array<double, stage_count> first_done_ = {}, first_seconds_ = {};
  Clock::time_point last_ = Clock::now();
};

}  // namespace ebb
