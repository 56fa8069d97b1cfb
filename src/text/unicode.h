// What tokenizers ask of Unicode: classes of characters, and the normal form that prompts take
// before they are split into words. The tables are utf8proc's.
#pragma once

#include <string>
#include <string_view>

namespace ebb::text {

// The classes of the regular expressions \p{L}, \p{N} and \s; `other` is the rest.
enum class CharClass { letter, number, space, other };
CharClass char_class(char32_t c);

// The value of a decimal digit of any script, \d; -1: it is none.
int decimal_digit(char32_t c);

// Normal form C, then every character in lower case by itself: a final sigma is not known, and
// U+0130 becomes two characters, as Rust's char::to_lowercase has it. Linear in the text: runs of
// combining marks are sorted, however long.
std::u32string lower_nfc(std::u32string text);

}  // namespace ebb::text
