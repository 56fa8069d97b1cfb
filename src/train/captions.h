// What is read of captions in training: a pure function of the captions, the seed and the number of
// the image in the run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ebb::train {

struct CaptionOptions {
  double dropout = 0;    // probability of the empty caption
  bool shuffle = false;  // of the parts between commas
  int64_t keep = 0;      // parts at the start that stay there
  std::string prefix = {};
};
void check(const CaptionOptions& options);  // throws Error

// Parts between commas, without the space around them; empty ones are left out.
std::vector<std::string> tags_of(const std::string& caption);

// Of several captions, the one that is read for an image.
const std::string& pick_caption(const std::vector<std::string>& captions, uint64_t seed,
                                int64_t image);

std::string caption_of(const std::string& caption, const CaptionOptions& options, uint64_t seed,
                       int64_t image);

}  // namespace ebb::train
