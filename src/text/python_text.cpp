#include "text/python_text.h"

#include <charconv>
#include <cstdlib>

#include "base/utf8.h"
#include "io/json_cursor.h"
#include "text/unicode.h"

namespace ebb::text {

bool python_space(char32_t c) {
  return (c >= 0x1C && c <= 0x1F) || char_class(c) == CharClass::space;
}

bool python_word_char(char32_t c) {
  const CharClass k = char_class(c);
  return c == '_' || k == CharClass::letter || k == CharClass::number;
}

bool whole_word_at(std::u32string_view text, size_t at, std::u32string_view word) {
  const size_t end = at + word.size();
  return text.substr(at).starts_with(word) && (at == 0 || !python_word_char(text[at - 1])) &&
         (end == text.size() || !python_word_char(text[end]));
}

std::u32string_view stripped(std::u32string_view text) {
  while (!text.empty() && python_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && python_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<double> python_float(std::u32string_view text) {
  text = stripped(text);
  if (text.empty() || text.size() > 400) return std::nullopt;
  std::string ascii;
  const auto digit_at = [&](size_t i) { return i < text.size() && decimal_digit(text[i]) >= 0; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && digit_at(i - 1) && digit_at(i + 1)) continue;
    if (digit_at(i))
      ascii += static_cast<char>('0' + decimal_digit(text[i]));
    else
      ascii += text[i] < 0x80 ? static_cast<char>(text[i]) : '?';
  }
  std::string_view number = ascii;
  if (number[0] == '+') number.remove_prefix(1);
  if (number.empty() || number.find('(') != std::string_view::npos) return std::nullopt;
  if (ascii[0] == '+' && number[0] == '-') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (end != number.data() + number.size()) return std::nullopt;
  // out of range: infinity, or 0
  if (error == std::errc::result_out_of_range) return std::strtod(ascii.c_str(), nullptr);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::string shown(std::u32string_view text) {
  const bool cut = text.size() > 40;
  return io::shown(to_utf8(text.substr(0, 40)) + (cut ? "..." : ""));
}

}  // namespace ebb::text
