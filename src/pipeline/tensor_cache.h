// TensorCache: results that take long, in files of a folder, each by a text that says everything
// that it depends on. Several processes may share the folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/plan_inputs.h"
#include "runtime/weight_store.h"

namespace ebb {

class TensorCache {
 public:
  // The folder is made with the first file. `say`: of files that are damaged and made again. Throws
  // Error where none could be written.
  TensorCache(std::string folder, std::function<void(std::string_view)> say);

  // What is kept for the text, or else what `make` gives, which is kept then.
  NamedTensors get(const std::string& text, const std::function<NamedTensors()>& make);
  std::string file_of(const std::string& text) const;
  const std::string& folder() const { return folder_; }
  int64_t made() const { return made_; }

 private:
  bool read(const std::string& text, NamedTensors& out) const;

  std::string folder_;
  std::function<void(std::string_view)> say_;
  int64_t made_ = 0;
};

// A hash of names, types and numbers, as text: what results of a network depend on.
std::string hash_text(const WeightStore& weights);

}  // namespace ebb
