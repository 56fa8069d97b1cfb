// The names and shapes that layouts of checkpoints have for the weights of networks, and the small
// files that diffusers has beside them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diffusion/config.h"
#include "models/model.h"
#include "pipeline/scheduler_config.h"

namespace ebb {

// Where one component goes.
struct ComponentPlace {
  std::string file;    // in the folder; "" of the layout that is one file
  std::string prefix;  // of its tensors' names
  nn::FilePlaces places;
  bool matrices = false;  // attention of the autoencoder is stored as matrices
};

// Whether a component has more layouts than the one that its file has.
bool has_layouts(const Component& c);

// Of each of these components, the denoiser first, in one file with the original's names.
std::vector<ComponentPlace> original_places(const std::vector<Component>& components);
// Of each in diffusers' folder.
std::vector<ComponentPlace> diffusers_places(const std::vector<Component>& components);

// What a file in the original layout says of the size of pictures, as metadata; nothing where it is
// the usual one of the denoiser's family.
std::map<std::string, std::string> resolution_metadata(const Component& denoiser);

// A scheduler_config.json, and the class of the scheduler that it says.
struct SchedulerFile {
  std::string name, text;
};

// The small files of diffusers' folder: their paths in it and their texts. The scheduler's is the
// given one, or, where that has no name, one that says what the config does. Throws Error for
// networks and configs that diffusers does not have.
std::map<std::string, std::string> diffusers_files(const std::vector<Component>& components,
                                                   const DiffusionConfig& diffusion,
                                                   const SchedulerFile& scheduler = {});

// What the layout that is one file cannot say of these components, with the flags that do when it
// is read: how the denoiser was trained, where that is not the usual of its kind, and a scheduler
// of few steps or of other levels.
std::vector<std::string> unsaid_by_one_file(const std::vector<Component>& components,
                                            const DiffusionConfig& diffusion,
                                            const std::optional<SchedulerConfig>& scheduler);

}  // namespace ebb
