// Python's notions of text, for the languages whose meaning they are.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ebb::text {

bool python_space(char32_t c);      // \s
bool python_word_char(char32_t c);  // \w

// Whether `word` stands at `at` with no word character beside it: \bword\b.
bool whole_word_at(std::u32string_view text, size_t at, std::u32string_view word);

std::u32string_view stripped(std::u32string_view text);  // str.strip()

// What float() makes of the text; none where it raises.
std::optional<double> python_float(std::u32string_view text);

// 'text' for an error, cut after 40 characters.
std::string shown(std::u32string_view text);

}  // namespace ebb::text
