// append, joined, separated: texts of many small fragments, where a stream for each would take most
// of the time.
#pragma once

#include <charconv>
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

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

}  // namespace ebb
