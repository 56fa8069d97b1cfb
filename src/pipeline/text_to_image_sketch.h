// TextToImage::Sketch: what a run would ask of its components.
#pragma once

#include <vector>

#include "pipeline/text_to_image.h"

namespace ebb {

// The work of the autoencoder, or of the network of a second pass, on an image.
struct PixelWork {
  enum class Kind : uint8_t { encode, decode, enlarge } kind;
  Shape shape;       // of pixels that are encoded or enlarged, or of latents that are decoded
  double scale = 1;  // to which they are enlarged
};

// What the stages of a run are asked for, found out by going through it with components that only
// note that: what they would give is zeros.
struct TextToImage::Sketch {
  std::vector<RunInputs> inputs;               // by pass
  std::vector<PlanNeeds> images;               // of image encoders, which leave after use
  std::vector<PixelWork> prepare;              // once
  std::vector<std::vector<PixelWork>> begins;  // by pass, once a batch
  Shape latents, pixels;                       // of one picture in the end
};

}  // namespace ebb
