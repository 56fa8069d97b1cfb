// Tuner: which of a kernel's candidates is the fastest here, measured once and kept in a text file.
//
// One line a choice, sorted, to be read, edited, joined and deleted freely:
//   ebb <version>, <device> | <kernel> | <signature> | turn=1 | 41.2 us
// A line whose candidate the kernel no longer offers is measured anew.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ir/kernel.h"

namespace ebb {

class Tuner {
 public:
  // Reads the file if it is there. Throws Error for a line that cannot be read.
  explicit Tuner(std::string path);

  // The kernel's best candidate: the kept one, or the winner of interleaved rounds on random data,
  // which is kept. A candidate that is 1.25 times slower than the best falls out.
  Tune choose(const Kernel& kernel, const Signature& sig, Device& device);
  // Writes the file, if anything was measured since, through a temporary one. Throws Error.
  void save();
  int64_t measured() const { return measured_; }

 private:
  struct Choice {
    std::string tune;
    double us = 0;
  };
  std::string path_;
  std::map<std::string, Choice, std::less<>> choices_;
  int64_t measured_ = 0, saved_ = 0;
};

// "turn=1 tile=64"; "-" for no values.
std::string tune_text(const Tune& tune);

// $XDG_CACHE_HOME/ebb/<name>, or ~/.cache/ebb/<name>; "" if neither is set.
std::string cache_path(std::string_view name);

}  // namespace ebb
