#include "pipeline/parameters.h"

#include "base/error.h"
#include "base/version.h"

namespace ebb {
namespace {

// Values with a comma, a colon or a line break are quoted as JSON.
std::string quoted(const std::string& value) {
  if (value.find_first_of(",:\n") == std::string::npos) return value;
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

}  // namespace

std::string parameters_text(const PictureParameters& p) {
  const GenerateOptions& o = p.options;
  std::string out = p.prompt;
  if (!p.negative.empty()) out += "\nNegative prompt: " + p.negative;
  out +=
      str("\nSteps: ", o.steps, ", Sampler: ", quoted(o.sampler),
          ", Schedule type: ", quoted(o.schedule), ", CFG scale: ", o.guidance, ", Seed: ", o.seed,
          ", Size: ", p.size.width, 'x', p.size.height, ", Model: ", quoted(p.model));
  if (p.clip_skip > 0) out += str(", Clip skip: ", p.clip_skip);
  return out + str(", Version: ebb ", version);
}

}  // namespace ebb
