// The texts that are written into pictures: A1111's, and what makes the same picture again.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "apps/cli/generate_flags.h"
#include "apps/cli/input_files.h"
#include "pipeline/text_to_image.h"

namespace ebb::cli {

struct PictureTexts {
  const GenerateFlags& flags;
  const ResolvedTextToImage& request;
  const GenerateOptions& ran;
  // The batch that it was in and its number are told, as a picture's bits may depend on the batch's
  // size. Its index negative: of all of them.
  const Picture& picture;
  const HashTexts& hashes;
  const std::vector<std::string>& lora_hashes;
};
std::map<std::string, std::string> picture_texts(const PictureTexts& t);

}  // namespace ebb::cli
