#include "base/file_and_numbers.h"

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/fields.h"

namespace ebb {

FileAndNumbers file_and_numbers(const std::string& text, size_t most, std::string_view who,
                                std::string_view noun) {
  std::error_code ignored;
  FileAndNumbers out{.file = text, .numbers = {}};
  while (out.numbers.size() < most && !std::filesystem::exists(out.file, ignored)) {
    const size_t colon = out.file.rfind(':');
    if (colon == std::string::npos) break;
    const std::string last = out.file.substr(colon + 1);
    const auto number = as_number(last);
    if (!number) {
      const std::string before = out.file.substr(0, colon);
      require(before.empty() || !std::filesystem::exists(before, ignored), who, ": the ", noun,
              " behind the file must be a number (got '", last, "')  ", before);
      require(!last.empty() || out.numbers.empty(), who, ": nothing stands between two colons, ",
              "where the ", noun, " must be a number (got '", text, "')");
      break;
    }
    require(std::isfinite(*number), who, ": the ", noun,
            " behind the file must be a finite number (got '", last, "')  ", text);
    out.numbers.insert(out.numbers.begin(), *number);
    out.file.resize(colon);
  }
  return out;
}

}  // namespace ebb
