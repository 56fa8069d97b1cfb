// MergedWeights: a checkpoint's weights with the changes of LoRAs in them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/tensor_file.h"
#include "pipeline/loras.h"
#include "runtime/context.h"

namespace ebb {

class MergedWeights {
 public:
  struct Part {
    std::shared_ptr<const io::TensorFile> file;
    std::string path;
    Component component;
  };
  // Whether there is a network that LoRAs may change.
  static bool changes_any(const std::vector<Part>& parts);
  // `parts`: the text encoders in the order in which denoisers read them. Throws Error for LoRAs
  // that fit none of them.
  MergedWeights(const std::vector<Part>& parts, const std::vector<LoraChoice>& loras);

  // Computes a weight, f32 as the file stores it, in the numbers that a run has in f32; null where
  // nothing changes it.
  std::function<Tensor()> of(const std::string& path, const std::string& prefix,
                             const std::string& weight) const;
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Context context_;
  struct Changed {
    std::shared_ptr<WeightStore> store;
    std::set<std::string> weights;  // that LoRAs change
  };
  std::map<std::pair<std::string, std::string>, Changed> networks_;  // by path and prefix
  std::vector<std::string> warnings_;
};

}  // namespace ebb
