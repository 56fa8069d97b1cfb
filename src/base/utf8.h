// UTF-8 (Unicode, section 3.9): lengths of sequences, writing, and reading with replacement.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ebb {

// The length of the well-formed sequence that starts `s`, or 0.
size_t utf8_length(std::string_view s);

bool valid_utf8(std::string_view text);

void append_utf8(std::string& out, char32_t c);

std::string to_utf8(std::u32string_view text);

// The code points. What is not well-formed becomes U+FFFD, one for each maximal part of a sequence
// (table 3-8), as Python's errors="replace" and web browsers do.
std::u32string decode_utf8(std::string_view text);

// `text` with the same replacements.
std::string repaired_utf8(std::string_view text);

}  // namespace ebb
