// Names: the nearest of a list of known names, for errors that suggest one.
#pragma once

#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb {

// The known name with the smallest edit distance to `name`, whatever their case, or "" if none is
// close (distance above a third of the length, at least 2, or half of the longer name and more).
std::string nearest_name(std::string_view name, std::span<const std::string> known);

// " (did you mean 'x'?)"; if none is near, all the names, or the nearest five of more than six.
std::string suggestion(std::string_view name, std::span<const std::string> known);

// Throws Error unless `name` is known: "WHAT 'name'" and a suggestion, as in "path: unknown name".
void check_known(std::string_view what, std::string_view name, std::span<const std::string> known);

// As check_known does for a name that is not.
[[noreturn]] void fail_unknown(std::string_view what, std::string_view name,
                               std::span<const std::string> known);

// The place in `known` of the name: as it is written, or else of the only one that differs from it
// by case alone; none: known.size().
size_t find_name(std::string_view name, std::span<const std::string> known);

// The element of `all` with the name, as find_name has it; name_of: a member of the elements or a
// function of them. Throws Error as check_known does.
template <class All, class NameOf>
const auto& find_known(std::string_view what, std::string_view name, const All& all,
                       NameOf name_of) {
  std::vector<std::string> known;
  for (const auto& one : all) known.emplace_back(std::invoke(name_of, one));
  const size_t at = find_name(name, known);
  if (at == known.size()) fail_unknown(what, name, known);
  return *std::next(std::begin(all), static_cast<std::ptrdiff_t>(at));
}

// Without blanks before and behind.
std::string_view trimmed(std::string_view text);

// In small letters.
std::string small_letters(std::string_view text);

// `text` with control characters, but no new lines, as \x1b: what a file says, for a terminal.
std::string printable(std::string_view text);

// The letters, small, and digits of a name: what is left of it however it is written. Signs that
// part lists (, ; : =) are no part of a name and stay.
std::string letters_and_digits(std::string_view name);
// Whether two names differ by case, blanks and signs only.
bool same_name(std::string_view a, std::string_view b);

}  // namespace ebb
