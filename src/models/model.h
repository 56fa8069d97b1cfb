// Model: one family of networks. src/models/<m>.cpp defines `const Model& ebb::models::<m>()`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "nn/network.h"
#include "nn/params.h"
#include "nn/weights.h"

namespace ebb {

struct Preset {
  std::string name;  // unique among the presets and names of all models
  std::string help;
  ModelConfig config;
};

// The class, of networks whose config has classes.
std::vector<nn::Condition> class_conditions(const ModelConfig& config);

struct Model {
  std::string name;
  std::string help;
  std::vector<Preset> presets;  // the model's own name selects the first
  // Throws Error for a config that cannot be built; sizes are checked before.
  void (*check)(const ModelConfig&) = nullptr;
  // The network under `p`: F [N,H,W,C'] (twice the channels if it learns the variance).
  Value (*build)(const nn::Params& p, const ModelConfig&, const nn::NetworkInputs&) = nullptr;
  // What the network takes beside the image and its noise level, all that build() may ask for.
  std::vector<nn::Condition> (*conditions)(const ModelConfig&) = class_conditions;
  // The config of the network with these tensors; none: of another model. What tensors do not
  // determine (heads, the order of q, k and v, ...) is taken from the preset with the same shapes,
  // or the defaults stated in the model's file.
  std::optional<ModelConfig> (*recognise)(const nn::FileShapes&) = nullptr;
  // What recognise() had to guess of this config, if no preset decides it: "heads 4"; "" if
  // nothing.
  std::string (*guessed)(const ModelConfig&) = +[](const ModelConfig&) { return std::string(); };
  // The diffusion of the published networks: fields of DiffusionConfig that differ from its
  // defaults, as text, "{precond=eps betas=cosine}".
  std::string (*diffusion)(const ModelConfig&) = +[](const ModelConfig&) { return std::string(); };
  // True for unused tensors of published files.
  bool (*ignored)(std::string_view name) = +[](std::string_view) { return false; };
};

// Throws Error for absurd sizes: describing such a network would take unbounded time and memory.
void check_sizes(const Model& model, const ModelConfig& config);
// Throws Error for a config that cannot be built: for such sizes, and for what the model rejects.
void check(const Model& model, const ModelConfig& config);

// Checks the config and gives the network with its parameters under `prefix`.
nn::Network network_of(const Model& model, ModelConfig config, std::string prefix = "");
// Sources x, noise and, under their own names, all conditions, for `batch` images of the config's
// size.
nn::NetworkInputs network_inputs(Graph& g, const Model& model, const ModelConfig& config,
                                 int64_t batch);

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Model*>& all_models();

struct NamedModel {
  const Model* model = nullptr;
  std::string preset;
  ModelConfig config;
  std::string name;  // the preset's or the model's, in its own case
};
// By the name of a preset or model, ignoring case. Throws Error, suggests the nearest.
NamedModel find_model(std::string_view name);

struct RecognisedModel {
  const Model* model = nullptr;
  ModelConfig config;
  std::string prefix;  // of the tensors' names in the file, e.g. "model."
};
// Throws Error that shows some names if no model has such tensors.
RecognisedModel recognise_model(const nn::FileShapes& tensors);

}  // namespace ebb
