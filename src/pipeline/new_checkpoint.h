// New checkpoints of text to image, of any size, whose weights are drawn: to be trained from
// scratch. Files have the layout of Stable Diffusion 1.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/model.h"

namespace ebb {

struct NewCheckpoint {
  std::string out;  // a .safetensors file
  bool overwrite = false;
  // A JSON object: "size", the side of the pictures in pixels, and "unet", "text_encoder" and
  // "autoencoder", each with the fields of its network that are not Stable Diffusion 1's.
  std::string networks;
  std::string subject;  // of the JSON, for errors
  uint64_t seed = 0;
  DType dtype = DType::f32;
  std::function<void(int64_t done, int64_t all)> progress = {};  // bytes; may throw
};

struct NewComponent {
  Component component;
  int64_t weights = 0;  // numbers
};

// Writes the file and gives what is in it. Throws Error: for networks that do not fit together,
// and for such that the file would be read as others, since shapes do not tell heads and groups.
std::vector<NewComponent> create_checkpoint(const NewCheckpoint& request);

}  // namespace ebb
