#include "pipeline/suggested_guidance.h"

#include <vector>

#include "base/error.h"
#include "base/fields.h"

namespace ebb {

std::optional<double> suggested_guidance(const io::TensorFile& file) {
  const auto said = file.metadata().find(guidance_key);
  if (said == file.metadata().end()) return {};
  const std::string subject = str("model: the metadata ", guidance_key);
  try {
    const double value = parse_number(said->second, subject);
    require(value >= 0 && value <= 100, subject, " must be a number from 0 to 100 (got '",
            said->second, "')");
    return value;
  } catch (const Error& e) {
    const std::vector<std::string> files = file.files();
    fail(e.what(), "  ", files.empty() ? "" : files.front());
  }
}

std::map<std::string, std::string> guidance_metadata(const io::TensorFile& file) {
  const auto value = suggested_guidance(file);
  if (!value) return {};
  return {{guidance_key, number_text(*value)}};
}

}  // namespace ebb
