// EnumField: a field that is a value of an enumeration, written as the value's name. Beside the
// enumeration, value_names() gives the names in the order of the enumerators, and the subject of
// error messages:
//
//   enum class Side : uint8_t { left, right };
//   constexpr ValueNames<2> value_names(Side) { return {"pad: side", {"left", "right"}}; }
//
//   struct Pad {
//     EnumField<Side> side = Side::right;
//     void fields(auto&& f) { f("side", side); }
//   };
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/fields.h"

namespace ebb {

template <size_t n>
struct ValueNames {
  std::string_view subject;
  std::array<std::string_view, n> names;
};

template <class E>
concept HasNames = requires(E v) {
  value_names(v).names;
};

// The index of a name. Throws Error "SUBJECT must be left or right (got 'NAME')".
size_t index_of(std::string_view name, std::string_view subject,
                std::span<const std::string_view> names);

template <HasNames E>
constexpr std::string_view name_of(E v) {
  return value_names(v).names.at(static_cast<size_t>(v));
}

template <HasNames E>
E parse_name(std::string_view name) {  // throws Error
  const auto all = value_names(E{});
  return static_cast<E>(index_of(name, all.subject, all.names));
}

// Whether there are as many names as there is room for, and none twice.
template <HasNames E>
constexpr bool has_distinct_names() {
  auto names = value_names(E{}).names;
  std::sort(names.begin(), names.end());
  return !names.front().empty() && std::adjacent_find(names.begin(), names.end()) == names.end();
}

template <HasNames E>
class EnumField final : public TextValue {
  static_assert(has_distinct_names<E>());

 public:
  EnumField(E v = {}) : value_(v) {}
  operator E() const { return value_; }
  std::string_view name() const { return name_of(value_); }
  std::string text() const override { return std::string(name()); }
  void parse(std::string_view text) override { value_ = parse_name<E>(text); }

 private:
  E value_;
};

}  // namespace ebb
