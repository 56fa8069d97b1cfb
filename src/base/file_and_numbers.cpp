#include "base/file_and_numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/names.h"

namespace ebb {

std::optional<double> as_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double out = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return {};
  return out;
}

std::vector<std::string_view> parted(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    out.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

std::string listed(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : ", ") + w;
  return out;
}

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
