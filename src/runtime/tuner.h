// Tuner: chooses the fastest kernel and candidate on this device. Measured once and cached in a
// text file.
//
// One line per choice, sorted; lines may be edited, merged and deleted:
//   ebb <version>+<kernels>, <device> | <signature> | <kernel> tile_m=128 | 41.2 us
// Signatures that differ only in what their expressions compute share a line; of expressions only
// the sizes stand there. A line whose candidate no longer exists is measured again. Presets for
// known devices come with the program (src/runtime/presets/, lines that start with
// `preset, <device>`); a measured line takes precedence.
#pragma once

#include <functional>
#include <istream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"

namespace ebb {

struct Contest;

struct Choice {
  const Kernel* kernel = nullptr;
  Tune tune;
};

// A use of an op with the kernels that support it, at least one.
struct Use {
  std::vector<const Kernel*> kernels;
  Signature sig;
};

// What choosing has cost so far.
struct TuningCosts {
  int64_t contests = 0, candidates = 0;  // measured; each contest is a signature, or several alike
  // Writing code; waiting for the compiler, allocating, the first runs; measuring.
  double prepare_s = 0, compile_s = 0, measure_s = 0;
};

class Tuner {
 public:
  enum class Effort : uint8_t {
    none,  // measures nothing: presets, else the kernels' best guess
    fast,  // what no preset knows, of candidates those that the kernels' models find likeliest
    full,  // all; more rounds, and slower candidates stay longer
  };
  // Reads the file if it is there. Throws Error for a line that cannot be read.
  Tuner(std::string path, Effort effort);
  // Presets only.
  Tuner() : Tuner("", Effort::none) {}

  // For each use the best of its kernels and of their candidates: the kept choice, or the winner of
  // interleaved rounds on random data, which is kept. Of several threads one chooses at a time, so
  // that devices of a kind have the same choices.
  std::vector<Choice> choose(std::span<const Use> uses, Device& device,
                             const std::function<void()>& poll = {});
  // What was measured on devices like this one, here or before, as lines of the file.
  std::string choices_for(const Device& device) const;
  // Takes such lines of another tuner, whose choices come before its own, and saves them; whether
  // that changed any. Throws Error.
  bool adopt(const std::string& lines);
  // Writes the file, if its choices changed since, through a temporary one. Throws Error.
  void save();
  int64_t measured() const { return costs_.contests; }
  const TuningCosts& costs() const { return costs_; }

 private:
  struct Kept {
    std::string choice;
    double us = 0;
  };
  bool read(std::istream& in, const std::string& name);  // whether that changed a choice
  static std::pair<std::string, Kept> parsed(std::string_view line, int64_t number,
                                             const std::string& name);
  void read_presets(const Device& device);  // once; what the file says comes before
  void write(std::ostream& out, std::string_view prefix) const;
  void save_locked();
  std::optional<Choice> known(const std::vector<Choice>& all, const Signature& sig,
                              const Device& device) const;
  std::vector<Choice> winners(const std::vector<Contest>& contests, Device& device,
                              const std::function<void()>& poll);

  std::string path_;
  Effort effort_;
  std::map<std::string, Kept, std::less<>> kept_;
  std::set<std::string> with_presets_;  // devices
  TuningCosts costs_;
  bool saved_ = true;
  mutable std::mutex choosing_;
};

// Every way to run the signature, each kernel's best guess first.
std::vector<Choice> candidates_of(std::span<const Kernel* const> kernels, const Signature& sig,
                                  const Device& device);

// "conv2d_sm90 tile_m=128 tile_n=256"; without values the kernel's name alone.
std::string choice_text(const Choice& choice);

// What the kept choices hold for: the program's version and kernels, the device, and the signature
// without what its expressions compute.
std::string tuning_key(const Device& device, const Signature& sig);

// $XDG_CACHE_HOME/ebb/<name>, or ~/.cache/ebb/<name>; "" if neither is set.
std::string cache_path(std::string_view name);

}  // namespace ebb
