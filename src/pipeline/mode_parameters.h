// What the web UI says of a run besides its sampler: an image to start from, masks, a second pass,
// a refiner, LoRAs and control networks, as PictureParameters::more takes it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/text_to_image.h"

namespace ebb {

// What a request does not know: names, without folder and extension.
struct ModeFiles {
  std::string refiner;
  std::vector<std::string> control_models;  // one for each of TextToImageRequest::controls
  // Of ResolvedTextToImage::loras, then those of its refiner_loras, see HashOf::tensors.
  std::vector<std::string> lora_hashes;
};
std::vector<std::pair<std::string, std::string>> mode_parameters(const ResolvedTextToImage& r,
                                                                 const ModeFiles& files);
// The prompt with a tag for each LoRA that is not named in it.
std::string with_lora_tags(const TextToImageRequest& request);

// Names of the web UI's menus and ebb's; "" for those that are none.
std::string masked_content_of(std::string_view menu_name);

}  // namespace ebb
