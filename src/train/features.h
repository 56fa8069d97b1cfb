// FeatureNet: a network from images to features, in one file: its graph as text and its weights.
//
// The file is a safetensors file. Metadata "graph" holds the text form of a graph (docs/tour.md)
// with the input `images` f32 [B,H,W,C] in [-1,1] and the output `features` f32 [B,D], perhaps also
// `logits` f32 [B,K]; a tensor for every param and state of the graph, of its name and type.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/plan.h"

namespace ebb::train {

class FeatureNet {
 public:
  // Throws Error that names the file.
  static FeatureNet load(const std::string& path, const Context& context);
  // `weights` holds every param and state of `graph`.
  FeatureNet(Graph graph, NamedTensors weights, const Context& context);
  // Further metadata may say what the network is.
  void save(const std::string& path, const std::map<std::string, std::string>& metadata) const;

  const Shape& image_shape() const { return image_; }  // [H,W,C]
  bool has_logits() const { return logits_; }
  int64_t features() const { return features_; }  // D, of a result
  struct Result {
    Tensor features;  // f32 [N,D]
    Tensor logits;    // f32 [N,K]; undefined without
  };
  // images f32 [N,H,W,C] for any N. Throws Error for images of another shape. `between` is called
  // before every batch and may throw.
  Result run(const Tensor& images, const std::function<void()>& between = {});

 private:
  std::string text_;
  NamedTensors weights_;
  std::unique_ptr<Plan> plan_;
  Shape image_;
  int64_t batch_ = 0, features_ = 0;
  bool logits_ = false;
};

}  // namespace ebb::train
