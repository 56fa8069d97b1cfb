// LoadedModel: the network of a checkpoint with its config, diffusion and weights.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "diffusion/config.h"
#include "io/tensor_file.h"
#include "models/model.h"
#include "runtime/plan.h"
#include "runtime/weight_store.h"

namespace ebb {

// The network and its parts that a checkpoint means.
struct LoadedModel {
  const Model* model = nullptr;
  ModelConfig config;
  DiffusionConfig diffusion;
  std::vector<std::string> class_names;
  std::shared_ptr<WeightStore> weights = nullptr;
  int64_t step = 0;     // of training; 0 if the file does not say
  bool of_run = false;  // `diffusion` is what it was trained with
  // What neither the file nor a preset says of the config, as text; "" if they say all.
  std::string guessed = {};
  // Fields that the config in the file lacks, with the defaults that stand for them; "" if none.
  std::string missing = {};
  // Control networks, whose weights are among `weights` (pipeline/control.h).
  std::vector<Component> controls = {};
};
// A file, or the folder of a run. `model` names the model of a file that cannot be recognised;
// `overrides` are fields of DiffusionConfig, by name and text. Throws Error, also for fields that
// do not apply to the model or that training has decided, and for weights that are not finite.
LoadedModel load_model(const std::string& path, const std::string& model = "",
                       const std::vector<std::pair<std::string, std::string>>& overrides = {},
                       const io::TensorFileOptions& options = {});

// Sets the fields that the JSON object names; tells of the others, which keep their defaults:
// "heads 2, blocks 1". Throws Error.
std::string set_known_fields(const std::vector<Field>& fields, const std::string& json,
                             const std::string& subject);
// The sentence about such fields.
std::string missing_text(const std::string& missing);
// "a, b"; either may be empty.
std::string join_texts(const std::string& a, const std::string& b);

// What the classes 0, 1, ... of a model are called: by its names, or else by their numbers.
std::vector<std::string> class_labels(const LoadedModel& model);

// What models of the family are trained as, if nothing else is said.
DiffusionConfig usual_diffusion(const Model& model, const ModelConfig& config);

}  // namespace ebb
