// The settings of a picture as AUTOMATIC1111's web UI writes them into it, which other programs
// read.
#pragma once

#include <string>

#include "pipeline/request.h"

namespace ebb {

struct PictureParameters {
  std::string prompt, negative;
  std::string model;  // its name, without folder and extension
  ImageSize size;     // pixels
  int64_t clip_skip = 0;
  GenerateOptions options;  // as it ran
};

// The prompt, "Negative prompt: ..." if there is one, and a line "Steps: 20, Sampler: ...".
std::string parameters_text(const PictureParameters& p);

}  // namespace ebb
