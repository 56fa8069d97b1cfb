// The settings of a picture as AUTOMATIC1111's web UI writes them into it, which other programs
// read.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pipeline/request.h"

namespace ebb {

struct PictureParameters {
  std::string prompt, negative;
  std::string model;       // its name, without folder and extension
  std::string model_hash;  // the first ten digits of its SHA-256; "" where it is not known
  std::string vae;         // likewise; "" where it is the model's own
  ImageSize size;          // pixels
  int64_t clip_skip = 0;
  GenerateOptions options;  // as it ran
  // What else had an effect, by the web UI's keys, in its order.
  std::vector<std::pair<std::string, std::string>> more = {};
};

// The prompt, "Negative prompt: ..." if there is one, and a line "Steps: 20, Sampler: ...".
std::string parameters_text(const PictureParameters& p);

}  // namespace ebb
