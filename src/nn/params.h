// Params: a scope in a model. Extends the names of its tensors and creates their sources.
//
// Value y = nn::linear(p / "blocks" / 3 / "fc1", x, width);   // blocks.3.fc1.weight, .bias
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "nn/weight_spec.h"

namespace ebb::nn {

class Params {
 public:
  // What the network says of each parameter that it makes is added to `weights`, where there are
  // such: to be kept beside the graph, which has names and types only.
  explicit Params(Graph& g, std::string path = "", Weights* weights = nullptr)
      : graph_(&g), weights_(weights), path_(std::move(path)) {}

  Params operator/(std::string_view name) const;
  Params operator/(int64_t index) const { return *this / std::to_string(index); }
  // The same scope, whose tensors are constants of gradients by what is built with it.
  Params constant() const;

  // A trained tensor / a kept but not trained one, named <path>.<name>, f32. One that is there
  // already is shared: a network built twice in a graph has one set of weights. Weight decay is for
  // matrices: biases and the gains of norms have none.
  Value param(std::string_view name, const Shape& shape, WeightSpec spec = {}) const;
  Value buffer(std::string_view name, const Shape& shape, WeightSpec spec = {}) const;
  // While the result lives, new nodes carry this path.
  [[nodiscard]] AtScope enter() const { return {*graph_, path_}; }

  Graph& graph() const { return *graph_; }
  const std::string& path() const { return path_; }

 private:
  std::string join(std::string_view name) const;
  Value source(Source::Kind kind, const std::string& name, const Shape& shape,
               WeightSpec spec) const;

  Graph* graph_;
  Weights* weights_;
  std::string path_;
  bool constant_ = false;
};

}  // namespace ebb::nn
