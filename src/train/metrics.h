// Metrics: training metrics as JSON lines, TensorBoard events and console lines.
#pragma once

#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "train/tensorboard.h"

namespace ebb::train {

struct StepMetrics {
  int64_t step = 0;  // steps done, 1 after the first
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double images_per_second = 0;
  double seconds = 0;                  // of the whole run, without pauses
  std::vector<NamedNumber> told = {};  // by the loss and the optimiser
};

// The loss as people are shown it: the mean over the newest steps of the run. It depends on nothing
// but their losses, so that it is the same wherever a step is shown and whatever starts it has
// seen.
class RecentLoss {
 public:
  static constexpr size_t window = 50;  // steps
  void add(double loss);
  double mean() const;  // 0: of none yet
  int64_t steps() const { return static_cast<int64_t>(losses_.size()); }

 private:
  std::deque<double> losses_;
};

// One JSON object, without a newline. Numbers keep every bit.
std::string metrics_json(const StepMetrics& m);

// Any numbers of a step, e.g. of an evaluation: {"step": 100, "eval/frechet_distance": 3.5}.
std::string metrics_json(int64_t step, std::span<const NamedNumber> numbers);

std::string metrics_file(const std::string& folder);

// `<folder>/metrics.jsonl`, one line a step, and TensorBoard's file.
class MetricsLog {
 public:
  // Continues after `step`: lines of later steps, which a resumed run repeats, are removed. A file
  // with a damaged line is renamed. Throws Error if the files cannot be written.
  MetricsLog(const std::string& folder, int64_t step, bool tensorboard);
  void add(const StepMetrics& m);
  // Any further numbers of a step, e.g. of an evaluation.
  void add(int64_t step, std::span<const NamedNumber> numbers);
  // Lines reach the file here at the latest. Throws Error when the disk is full.
  void flush();
  const std::string& warning() const { return warning_; }    // about a damaged file; "": none
  double seconds_before() const { return seconds_before_; }  // of the run so far
  const RecentLoss& recent_loss() const { return recent_; }  // also of the steps before a resume

 private:
  void add_line(const std::string& line);
  void write_pending();
  std::string path_, warning_;
  std::string pending_;  // lines that are not in the file yet
  std::unique_ptr<io::AppendFile> file_;
  std::unique_ptr<TensorBoard> board_;
  double seconds_before_ = 0;
  RecentLoss recent_;
};

// Throws Error if append_metrics() could not write: to be asked before long work.
void check_can_append_metrics(const std::string& folder);
// Adds a line to the metrics of a run that this process does not train, if the folder has such a
// file. Throws Error.
void append_metrics(const std::string& folder, int64_t step, std::span<const NamedNumber> numbers);

// Bias-corrected exponential moving average over about the last 1 / (1 - decay) values.
class Smoothed {
 public:
  explicit Smoothed(double decay) : decay_(decay) {}
  void add(double v) {
    sum_ = decay_ * sum_ + (1 - decay_) * v;
    weight_ = decay_ * weight_ + (1 - decay_);
  }
  double value() const { return weight_ > 0 ? sum_ / weight_ : 0; }

 private:
  double decay_, sum_ = 0, weight_ = 0;
};

struct Progress {
  StepMetrics now;
  RecentLoss loss = {};
  struct Measured {
    double loss = NAN;  // NaN: none
    int64_t step = 0;   // where it was measured
  };
  Measured validation;
  int64_t steps = 0;         // of the whole run; 0: unknown
  double seconds_left = -1;  // -1: unknown
  int64_t plan_bytes = 0;    // planned peak of the step
  // Of a device with memory of its own, at most so far; 0: the memory shown is that of the process.
  int64_t device_bytes = 0;
  int64_t driver_bytes = 0;  // of these, beside the plan's: DriverMemory::now
};
// "step 1200/5000  loss 0.1234 (mean of 50)  validation 0.1301 (step 1180)  grad 0.31  lr 2e-04 512
// img/s  left 1h02m  memory 812 MB (plan 640)", of a GPU "(plan 640, driver 150)"; the mean only of
// several steps, the second step only where it is not the line's; behind lr what the loss and the
// optimiser tell, as "d 3.1e-05"
std::string progress_line(const Progress& p);

// Resident memory of this process, bytes; 0 where unknown.
int64_t resident_bytes();
// "45s", "3m20s", "1h02m", "2d03h"
std::string duration_text(double seconds);
// ", 3m20s left" of work of which `share` (0 to 1) is done since `start`; "" at 0 and 1.
std::string left_text(std::chrono::steady_clock::time_point start, double share);

}  // namespace ebb::train
