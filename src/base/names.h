// Names: the nearest of a list of known names, for errors that suggest one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

// The known name with the smallest edit distance to `name`, or "" if none is close (distance
// above a third of the length, at least 2, or half of the longer name and more).
std::string nearest_name(std::string_view name, std::span<const std::string> known);

// " (did you mean 'x'?)", or a list of all the names, each once, if none is near.
std::string suggestion(std::string_view name, std::span<const std::string> known);

// Throws Error unless `name` is known: "WHAT 'name'" and a suggestion, as in "path: unknown name".
void check_known(std::string_view what, std::string_view name, std::span<const std::string> known);

// Without blanks before and behind.
std::string_view trimmed(std::string_view text);

// The letters, small, and digits of a name: what is left of it however it is written.
std::string letters_and_digits(std::string_view name);

}  // namespace ebb
