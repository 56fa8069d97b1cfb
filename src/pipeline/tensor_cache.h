// TensorCache: results that take long, in files of a folder, each by a text that says everything
// that it depends on, and in memory as far as there is room. Several processes may share the
// folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/plan_inputs.h"
#include "runtime/weight_store.h"

namespace ebb {

class TensorCache {
 public:
  struct Options {
    std::string folder;                              // made with the first file
    std::function<void(std::string_view)> say = {};  // of files that are damaged and made again
    int64_t memory = 0;  // bytes of tensors and their texts that stay in memory, at most
  };
  // Throws Error where no file could be written.
  explicit TensorCache(Options options);

  // What is kept for the text, or else what `make` gives, which is kept then. The tensors are
  // shared with later calls: whoever changes them clones them.
  NamedTensors get(const std::string& text, const std::function<NamedTensors()>& make);
  std::string file_of(const std::string& text) const;
  const std::string& folder() const { return options_.folder; }
  int64_t made() const { return made_; }
  // Whether all that get() gave is in memory, so that it gives that again without a file.
  bool holds_all() const { return holds_all_; }
  int64_t memory() const { return options_.memory; }
  // For what get() gives from now on.
  void set_memory(int64_t bytes) { options_.memory = bytes; }

 private:
  bool read(const std::string& text, NamedTensors& out) const;
  void write(const std::string& text, const NamedTensors& tensors);
  void hold(const std::string& text, const NamedTensors& tensors);

  Options options_;
  std::unordered_map<std::string, NamedTensors> held_;
  int64_t held_bytes_ = 0, made_ = 0;
  bool holds_all_ = true;
};

// A hash of names, types and numbers, as text: what results of a network depend on.
std::string hash_text(const WeightStore& weights);

}  // namespace ebb
