// What `ebb generate` asks of the engine, made of its flags: also of the settings of a server's
// job.
#pragma once

#include <functional>
#include <string_view>

#include "apps/cli/generate_flags.h"
#include "pipeline/text_to_image.h"

namespace ebb::cli {

// Names in their own case, and what was left open. `given`: whether something says a field. Throws
// Error for names that there are not.
void settle(GenerateFlags& o, const std::function<bool(std::string_view field)>& given);

text::PromptSyntax syntax_of(const GenerateFlags& o);
// Both read files. Throw Error.
TextToImageRequest request_of(const GenerateFlags& o);
CheckpointParts parts_of(const GenerateFlags& o);

}  // namespace ebb::cli
