#include "base/byte_size.h"

#include <charconv>
#include <string>

#include "base/names.h"

namespace ebb {
namespace {

// 0: there is no such unit.
double bytes_of(std::string_view unit) {
  if (unit == "mb" || unit == "m") return 1e6;
  if (unit == "gb" || unit == "g") return 1e9;
  if (unit == "mib") return 0x1p20;
  if (unit == "gib") return 0x1p30;
  return 0;
}

}  // namespace

std::optional<int64_t> parse_size(std::string_view given) {
  const std::string text = small_letters(trimmed(given));
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [rest, fault] = std::from_chars(text.data(), end, number);
  if (fault != std::errc() || !(number > 0 && number < 1e9)) return {};
  const auto bytes =
      static_cast<int64_t>(number * bytes_of(trimmed({rest, static_cast<size_t>(end - rest)})));
  return bytes > 0 ? std::optional(bytes) : std::nullopt;
}

}  // namespace ebb
