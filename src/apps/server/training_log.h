// TrainingLog: what metrics.jsonl of a run says, in memory that does not grow with the file. Each
// look reads only what was added.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "base/temporary.h"
#include "train/metrics.h"

namespace ebb::server {

// A curve of any number of values in at most `most` parts of equally many each.
class ThinCurve {
 public:
  static constexpr size_t most = 400;
  struct Part {
    int64_t step = 0;  // of its last value
    double mean = 0, least = 0, greatest = 0;
    int64_t values = 0;
  };
  // Of a step behind those before: others are left out.
  void add(int64_t step, double value);
  // In order; the last one may have fewer values.
  const std::vector<Part>& parts() const { return parts_; }
  int64_t values_a_part() const { return values_a_part_; }

 private:
  std::vector<Part> parts_;
  int64_t values_a_part_ = 1;
};

class TrainingLog {
 public:
  // Reads on, at most `budget` bytes, which are taken off it; from the beginning where it is
  // another file by now, as behind --resume. Other lines than objects with a step are counted.
  void read(const Descriptor& file, int64_t& budget);

  // By the lines that were read. Of numbers that no line has: 0, or a step of -1.
  struct Now {
    int64_t step = 0;
    double loss = 0, lr = 0, grad_norm = 0;
    double smoothed_loss = 0;  // train::RecentLoss
    double seconds = 0;        // of training
    int64_t validation_step = -1;
    double validation = 0;
  };
  const Now& now() const { return now_; }
  const ThinCurve& loss() const { return loss_; }
  const ThinCurve& validation() const { return validation_; }
  double seconds_a_step() const;  // lately, with what lies between steps; 0: not known
  int64_t damaged() const { return damaged_; }  // lines
  int64_t size() const { return size_; }        // of the file, bytes
  double share_read() const;                    // of the file, 0 to 1
  double changed() const { return changed_; }   // when it was, unix time; 0: no file

 private:
  void add(std::string_view bytes);
  void add_line(std::string_view line);

  uint64_t device_ = 0, inode_ = 0;
  int64_t read_ = 0, size_ = 0;
  double changed_ = 0;
  std::string begun_;      // a line whose end is not there yet
  bool too_long_ = false;  // it is, and its rest is passed over
  int64_t damaged_ = 0;
  Now now_;
  train::RecentLoss recent_;
  ThinCurve loss_, validation_;
  struct Mark {
    int64_t step;
    double seconds;
  };
  std::deque<Mark> lately_;
};

}  // namespace ebb::server
