#include "base/text.h"

#include <algorithm>

#include "base/names.h"

namespace ebb {

std::vector<std::string_view> parted(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find_first_of(separators, at), text.size());
    out.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return out;
}

std::vector<std::string_view> items_in(std::string_view text, std::string_view separators) {
  if (text.empty()) return {};
  return parted(text, separators);
}

std::string listed(const std::vector<std::string>& words) { return separated(words, ", "); }

}  // namespace ebb
