// Styles: parts of prompts by name, of a file as A1111's programs keep them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::server {

struct Style {
  std::string name, prompt, negative;
};

// Of a file of lines `name,prompt,negative_prompt` with these words as the first one, as in A1111's
// styles.csv (comma-separated values, RFC 4180; columns in any order, others are passed over).
// Throws Error, naming the file and the line, also where two have one name.
std::vector<Style> read_styles(const std::string& file);

// Null where there is none of that name.
const Style* find_style(std::span<const Style> all, std::string_view name);

// The text with a style's: in place of its {prompt}, or else behind the text, with ", " between.
// Throws Error for one of more than `most` bytes, before it is made.
std::string with_style(const std::string& text, const std::string& style, size_t most);

}  // namespace ebb::server
