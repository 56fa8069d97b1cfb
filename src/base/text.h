// append, joined, separated: texts of many small fragments, where a stream for each would take most
// of the time. parted: the fragments of such a text.
#pragma once

#include <charconv>
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ebb {

// What append() takes: texts, characters, integers, and what has append_to(std::string&, const T&).
template <class T>
concept Appendable = std::is_convertible_v<const T&, std::string_view> ||
                     (std::is_integral_v<T> && (sizeof(T) > 1 || std::is_same_v<T, char>)) ||
                     requires(const T& part, std::string& to) {
  append_to(to, part);
};

template <Appendable T>
void append(std::string& to, const T& part) {
  if constexpr (requires { append_to(to, part); }) {
    append_to(to, part);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    to += std::string_view(part);
  } else if constexpr (std::is_same_v<T, char>) {
    to += part;
  } else {
    char digits[24];
    to.append(digits, std::to_chars(digits, digits + sizeof digits, part).ptr);
  }
}

// The parts one after the other, as str() gives them.
template <Appendable... Parts>
std::string joined(const Parts&... parts) {
  std::string out;
  (append(out, parts), ...);
  return out;
}

// The items with `between` in between, each as `part` gives it, which append() takes.
template <class Items, class Part = std::identity>
std::string separated(const Items& items, std::string_view between, const Part& part = {}) {
  std::string out;
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) out += between;
    append(out, part(item));
  }
  return out;
}

// What stands between the separators, each without blanks before and behind: one more than there
// are separators. The parts lie in `text`.
std::vector<std::string_view> parted(std::string_view text, std::string_view separators);
// The items of a list: the same, but none in an empty text. "1,2," has three, the last of them
// empty.
std::vector<std::string_view> items_in(std::string_view text, std::string_view separators);

// Parts of a text that is gone would be nothing.
template <class Text>
concept TemporaryString = std::same_as<Text, std::string>;
void parted(TemporaryString auto&& text, std::string_view separators) = delete;
void items_in(TemporaryString auto&& text, std::string_view separators) = delete;

// The words with commas between them.
std::string listed(const std::vector<std::string>& words);

}  // namespace ebb
