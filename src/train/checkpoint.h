// Checkpoints: the weights of a run on disk; docs/checkpoints.md describes the files.
//
//   <out>/model-00001000.safetensors   averaged weights, under the names and in the layout of the
//                                      model's published files: what sampling uses
//   <out>/state-00001000.safetensors   what resuming needs besides
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/weights.h"
#include "train/state.h"

namespace ebb::train {

// The description of a run in a checkpoint, sufficient to rebuild the network and the diffusion.
struct RunInfo {
  std::string model;         // name of the family
  std::string model_config;  // JSON objects
  std::string diffusion_config;
  std::string train_config;
  std::vector<std::string> class_names;
  std::string task = {};  // what is trained, where it is no network under its own names
};

// Writes the model file of a state, where it is not the network's own tensors: an adapter, or a
// checkpoint with all components. The file must have the metadata.
using WriteModel = std::function<void(const std::string& path, const TrainState& state,
                                      const std::map<std::string, std::string>& metadata)>;

struct Saving {
  const RunInfo& info;
  int64_t keep = 0;             // checkpoints, the newest; 0: all
  WriteModel write_model = {};  // null: the network's own tensors
};

// ---- files ---------------------------------------------------------------------------------

// Writes both files, each through a temporary file and a rename; then deletes all but the newest
// `keep` checkpoints. On any Error the older checkpoints are whole; of a run with `write_model` the
// state is there though the model file could not be written, and the other way round. Returns the
// path of the model file.
std::string save_checkpoint(const std::string& folder, const TrainState& state, const Saving& how);

// What to say, before a run, of a folder whose file system has less room than the trained tensors
// of a checkpoint take: how much both are; "": it has enough, or does not tell.
std::string missing_room(const std::string& folder, const nn::Weights& weights,
                         const Optimizer& optimizer);

// Steps of the checkpoints in a folder that a run can go on from, ascending: with both files, or
// with a state that has all weights, or that cannot be read, of which going on says so. Empty if
// there is no such folder.
std::vector<int64_t> checkpoint_steps(const std::string& folder);
// The newest of them, which a run goes on from. Throws Error if there is none; it names a training
// state that is missing for a model.
int64_t last_checkpoint(const std::string& folder);
// A number that tells the contents of checkpoints of one step apart: of sizes and samples of its
// files, not of all bytes. Throws Error.
uint64_t checkpoint_hash(const std::string& folder, int64_t step);
// The step of the newest model file, with or without a state; none: there is no model.
std::optional<int64_t> last_model(const std::string& folder);
std::string model_file(const std::string& folder, int64_t step);
std::string state_file(const std::string& folder, int64_t step);
// Whether a tensor of a file with this metadata is one of the optimiser's moments.
bool is_moment(const std::map<std::string, std::string>& metadata, std::string_view tensor);
bool is_checkpoint_file(const std::string& name);  // by its name alone, without a folder
// Halves of checkpoints: states without the model that they belong to, as a killed process leaves
// them, and models without a state that are newer than the newest checkpoint. A model of an older
// step is none of them: its state may have been deleted to save room.
struct HalfCheckpoints {
  std::vector<std::string> models, states;  // paths
};
HalfCheckpoints half_checkpoints(const std::string& folder);

// The state of the newest complete checkpoint; where its model file is not the network's own, what
// is not trained is given. Throws Error if there is none, if it is damaged or another network's; it
// says how to go on from an older one that is whole.
TrainState load_state(const std::string& folder, nn::Weights weights,
                      const NamedTensors& given = {},
                      const Optimizer& optimizer = find_optimizer("adamw"));

// The model file of `path`: itself, or the newest in the folder (or that of `step`). Throws Error
// for what is neither, and for a state file.
std::string find_model_file(const std::string& path, std::optional<int64_t> step = {});
struct ModelFileInfo {
  RunInfo run;
  int64_t step = 0;
};
// None for a file that ebb did not write (a published one). Throws Error for damaged files.
std::optional<ModelFileInfo> read_model_info(const std::string& file);
// That of the newest complete checkpoint. Throws Error as load_state() does.
ModelFileInfo last_model_info(const std::string& folder);
// The newest model file in `folder` that is older than the damaged one and for which load(file)
// throws no Error; "" if there is none, or `folder` is a file.
std::string older_model(const std::string& folder, const std::string& damaged,
                        const std::function<void(const std::string& file)>& load);

}  // namespace ebb::train
