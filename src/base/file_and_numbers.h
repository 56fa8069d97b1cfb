// Texts of several parts, as flags are: a file with numbers behind it, parted by colons,
// "FILE:0.8:0.5", and lists.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

struct FileAndNumbers {
  std::string file;
  std::vector<double> numbers;  // in the order of the text

  double number(size_t i, double otherwise) const {
    return i < numbers.size() ? numbers[i] : otherwise;
  }
};
// At most `most` numbers are read, from the end: what is no number belongs to the name, which may
// have colons of its own. `who` and `noun` ("lora", "strength") are for errors: throws Error for a
// number that is not finite, and where a file is there but for what stands behind its last colon.
FileAndNumbers file_and_numbers(const std::string& text, size_t most, std::string_view who,
                                std::string_view noun);

// What stands between the separators, each without blanks before and behind: one more than there
// are separators. The parts lie in `text`.
std::vector<std::string_view> parted(std::string_view text, std::string_view separators);
// Parts of a text that is gone would be nothing.
template <class Text>
requires std::same_as<Text, std::string> std::vector<std::string_view> parted(
    Text&& text, std::string_view separators)
= delete;

// The words with commas between them.
std::string listed(const std::vector<std::string>& words);

// The number that all of `text` is; none: it is something else.
std::optional<double> as_number(std::string_view text);

}  // namespace ebb
