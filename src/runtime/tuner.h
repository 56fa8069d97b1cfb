// Tuner: chooses the fastest kernel and candidate on this device. Measured once and cached in a
// text file.
//
// One line per choice, sorted; lines may be edited, merged and deleted:
//   ebb <version>+<kernels>, <device> | <signature> | <kernel> tile_m=128 | 41.2 us
// A line whose candidate no longer exists is measured again. Presets for known devices come with
// the program (src/runtime/presets/, lines that start with `preset, <device>`); a measured line
// takes precedence.
#pragma once

#include <istream>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "ir/kernel.h"

namespace ebb {

struct Choice {
  const Kernel* kernel = nullptr;
  Tune tune;
};

class Tuner {
 public:
  enum class Effort : uint8_t {
    none,  // measures nothing: presets, else the kernels' best guess
    fast,  // what no preset knows
    full,  // all; more rounds, and slower candidates stay longer
  };
  // Reads the file if it is there. Throws Error for a line that cannot be read.
  Tuner(std::string path, Effort effort);
  // Presets only.
  Tuner() : Tuner("", Effort::none) {}

  // The best of the kernels, all of which support the signature (at least one), and of their
  // candidates: the kept choice, or the winner of interleaved rounds on random data, which is kept.
  Choice choose(std::span<const Kernel* const> kernels, const Signature& sig, Device& device);
  // Writes the file, if anything was measured since, through a temporary one. Throws Error.
  void save();
  int64_t measured() const { return measured_; }

 private:
  struct Kept {
    std::string choice;
    double us = 0;
  };
  void read(std::istream& in, const std::string& name);

  std::string path_;
  Effort effort_;
  std::map<std::string, Kept, std::less<>> kept_;
  int64_t measured_ = 0, saved_ = 0;
};

// Every way to run the signature, each kernel's best guess first.
std::vector<Choice> candidates_of(std::span<const Kernel* const> kernels, const Signature& sig,
                                  const Device& device);

// "conv2d_sm90 tile_m=128 tile_n=256"; without values the kernel's name alone.
std::string choice_text(const Choice& choice);

// What the kept choices hold for: the program's version and kernels, and the device.
std::string tuning_key(const Device& device, const Signature& sig);

// $XDG_CACHE_HOME/ebb/<name>, or ~/.cache/ebb/<name>; "" if neither is set.
std::string cache_path(std::string_view name);

}  // namespace ebb
