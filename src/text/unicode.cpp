#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace ebb::text {
namespace {

// The canonical decomposition, in canonical order. utf8proc orders by insertion, which is quadratic
// in a run of combining marks.
std::vector<utf8proc_int32_t> decomposed(const std::u32string& text) {
  std::vector<utf8proc_int32_t> out;
  out.reserve(text.size() + text.size() / 4);
  utf8proc_int32_t parts[32];  // the longest canonical decomposition has 4
  for (const char32_t c : text) {
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(c), parts, 32,
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    require(n >= 0 && n <= 32, "text: a character cannot be decomposed (", static_cast<uint32_t>(c),
            ")");
    out.insert(out.end(), parts, parts + n);
  }
  const auto order = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (auto at = out.begin(); at != out.end();) {
    if (order(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, out.end(), [&](auto c) { return order(c) == 0; });
    std::stable_sort(at, end, [&](auto a, auto b) { return order(a) < order(b); });
    at = end;
  }
  return out;
}

}  // namespace

CharClass char_class(char32_t c) {
  if ((c >= 9 && c <= 13) || c == 0x85) return CharClass::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::letter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::number;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return CharClass::space;
    default: return CharClass::other;
  }
}

int decimal_digit(char32_t c) {
  const auto is_digit = [](char32_t d) {
    return utf8proc_category(static_cast<utf8proc_int32_t>(d)) == UTF8PROC_CATEGORY_ND;
  };
  if (c < 0x80) return c >= '0' && c <= '9' ? static_cast<int>(c - '0') : -1;
  if (!is_digit(c)) return -1;
  // Digits lie in tens, from that of value 0 on, some tens directly behind others.
  int before = 0;
  while (is_digit(c - static_cast<char32_t>(before) - 1)) ++before;
  return before % 10;
}

std::u32string lower_nfc(std::u32string text) {
  if (std::any_of(text.begin(), text.end(), [](char32_t c) { return c >= 0x80; })) {
    std::vector<utf8proc_int32_t> parts = decomposed(text);
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(
        parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    require(n >= 0, "text: utf8proc cannot compose it (", n, ")");
    text.assign(parts.begin(), parts.begin() + n);
  }
  std::u32string out;
  out.reserve(text.size());
  for (const char32_t c : text) {
    out += static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
    if (c == U'\u0130') out += U'\u0307';
  }
  return out;
}

}  // namespace ebb::text
