// Checkpoints written anew: other containers, layouts and dtypes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "diffusion/config.h"
#include "pipeline/loras.h"

namespace ebb {

enum class CheckpointLayout : uint8_t {
  same,       // the tensors' names as they are
  original,   // one file with the names of the original programs
  diffusers,  // a folder
};

// Weights that take the place of the input's.
struct TrainedWeights {
  // Of a component in the file `path`: computes a weight, f32 as files have it, where they do not
  // transpose it. Null: it is as it was.
  std::function<std::function<Tensor()>(const std::string& path, const Component& component,
                                        const std::string& weight)>
      of;
  DiffusionConfig diffusion;
  std::map<std::string, std::string> metadata;  // beside the layout's
};

struct ConvertOptions {
  std::string in, out;     // a file, or a folder of diffusers
  bool overwrite = false;  // a file that is there
  CheckpointLayout layout = CheckpointLayout::same;
  std::optional<DType> dtype = {};             // of the floats; none: each as it is
  bool averaged = false;                       // the moving averages in place of the weights
  std::string variant = {};                    // of a folder's files
  std::vector<LoraChoice> loras = {};          // that are merged into U-Net and text encoders
  std::optional<TrainedWeights> trained = {};  // only with the layout `original`
};

struct Converted {
  int64_t tensors = 0, bytes = 0;
  std::vector<std::string> left_out;  // tensors of the input that no network has
  // About LoRAs that fit in part, and what was guessed of networks without a preset (no tensor
  // tells it), which a folder's config.json files now state.
  std::vector<std::string> warnings;
};

// Writes safetensors; a file is replaced at the end, whole or not at all. Throws Error: for an
// input that is no checkpoint where the layout changes, for an output that is an input, a file that
// exists without `overwrite` or a folder that is not empty, for numbers that the dtype does not
// hold, and where the disk is full. `progress`: bytes done of all.
Converted convert_checkpoint(const ConvertOptions& options,
                             const std::function<void(int64_t, int64_t)>& progress = {});

}  // namespace ebb
