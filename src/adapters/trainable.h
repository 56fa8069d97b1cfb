// TrainableAdapter: a new adapter of a network, as the parameters of a loss graph and as a file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "adapters/kind.h"
#include "adapters/targets.h"
#include "nn/weights.h"
#include "runtime/plan_inputs.h"

namespace ebb::adapters {

struct TrainableOptions {
  std::string kind = "lora";  // of all_kinds(), those with factors; "dora": lora, decomposed
  FactorSizes sizes = {};
  double alpha = 16;
  bool decomposed = false;             // magnitudes are trained, too (adapters/decomposed.h)
  FileNames names = FileNames::kohya;  // of its file
};
// Throws Error for settings that cannot be, and for names that the kind has not.
void check(const TrainableOptions& options);
// What may be TrainableOptions::kind, in lower case.
std::vector<std::string> trainable_kinds();

struct WritingOptions {
  DType dtype = DType::f32;  // of the factors in the file
  std::map<std::string, std::string> metadata = {};
};

// A network of a loss graph.
struct AdaptedNetwork {
  Network network;
  // Parts of layers' names, the original's or diffusers'; a layer with one of them is adapted.
  // None: the network stays as it is.
  std::vector<std::string> targets;
  std::string prefix = {};  // of its weights' names in the graph
  nn::Weights weights;      // that the graph has, by the network's own names
};

class TrainableAdapter {
 public:
  // Throws Error where a target fits no layer of its network that has a matrix or a filter.
  TrainableAdapter(std::vector<AdaptedNetwork> networks, const TrainableOptions& options);
  // Of all weights of one network.
  TrainableAdapter(const Network& network, const TrainableOptions& options,
                   std::vector<std::string> targets = {"attentions"});

  // The loss with the networks' params as states, which stay as they are, and the adapter's factors
  // as params. Each adapted weight is read as weight + change, as merging the file gives it;
  // changes of low rank are beside their weights (passes/contractions/distribute_products.h).
  Graph adapted(const Graph& loss) const;
  // Of such a graph: the networks' own, which are not trained, and the factors.
  nn::Weights weights() const;
  // Of decomposed adapters: what of weights() follows from the networks' weights, given by name, as
  // these have them: magnitudes begin as the lengths of their rows.
  NamedTensors given(const NamedTensors& weights) const;
  // The factors of the networks of a part.
  std::vector<std::string> factors_of(Network::Part part) const;
  const AdapterKind& kind() const { return *kind_; }
  bool decomposed() const { return options_.decomposed; }
  size_t layers() const { return layers_.size(); }
  int64_t elements() const;  // of all factors

  // The file; `tensors`: the factors by the names of weights(), perhaps behind a prefix. Throws
  // Error for numbers that the dtype does not hold.
  void write(const std::string& path, const NamedTensors& tensors, const std::string& prefix,
             const WritingOptions& how) const;

 private:
  struct Layer {
    size_t network = 0;
    nn::Weight weight;  // that is adapted
    std::string layer;  // its name without ".weight"
    double scale = 1;   // alpha / rank, as the kind reads them
    std::vector<std::pair<std::string, nn::Weight>> factors;  // by role
    // Of decomposed ones: the last of the factors, and the lengths of the weight's rows, which
    // stay.
    nn::Weight magnitude = {}, length = {};  // f32 [rows]
  };
  void add_layers(size_t network);
  void add_layer(size_t network, const nn::Weight& weight, const std::string& layer);
  Value changed(Value weight, const Layer& layer) const;
  std::string peft_facts(const std::vector<LayerNames>& names) const;

  std::vector<AdaptedNetwork> networks_;
  TrainableOptions options_;
  const AdapterKind* kind_;
  std::vector<Layer> layers_;
};

}  // namespace ebb::adapters
