// The names and shapes that layouts of checkpoints have for the weights of networks, and the small
// files that diffusers has beside them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "diffusion/config.h"
#include "models/model.h"

namespace ebb {

// Where one component goes.
struct ComponentPlace {
  std::string file;    // in the folder; "" of the layout that is one file
  std::string prefix;  // of its tensors' names
  nn::FilePlaces places;
  bool matrices = false;  // attention of the autoencoder is stored as matrices
};

// Of each of these components, the denoiser first, in one file with the original's names.
std::vector<ComponentPlace> original_places(const std::vector<Component>& components);
// Of each in diffusers' folder.
std::vector<ComponentPlace> diffusers_places(const std::vector<Component>& components);

// The small files of diffusers' folder: their paths in it and their texts.
std::map<std::string, std::string> diffusers_files(const std::vector<Component>& components,
                                                   const DiffusionConfig& diffusion);

}  // namespace ebb
