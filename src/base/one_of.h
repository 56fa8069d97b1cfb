// OneOf: a field that is a value of an enumeration, written as the value's name. The enumeration
// brings its names in order, behind what errors call it.
//
//   enum class Side : uint8_t { left, right };
//   constexpr ValueNames<2> value_names(Side) { return {"pad: side", {"left", "right"}}; }
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/fields.h"

namespace ebb {

template <size_t n>
struct ValueNames {
  std::string_view what;
  std::array<std::string_view, n> names;
};

template <class E>
concept HasNames = requires(E v) {
  value_names(v).names;
};

// The place of `text` among the names. Throws Error "WHAT must be left or right (got 'TEXT')".
size_t place_of(std::string_view text, std::string_view what,
                std::span<const std::string_view> names);

template <HasNames E>
constexpr std::string_view name_of(E v) {
  return value_names(v).names[static_cast<size_t>(v)];
}

template <HasNames E>
E parse_name(std::string_view text) {  // throws Error
  const auto all = value_names(E{});
  return static_cast<E>(place_of(text, all.what, all.names));
}

template <HasNames E>
class OneOf final : public TextValue {
 public:
  OneOf(E v = {}) : value_(v) {}
  operator E() const { return value_; }
  std::string_view name() const { return name_of(value_); }
  std::string text() const override { return std::string(name()); }
  void parse(std::string_view text) override { value_ = parse_name<E>(text); }

 private:
  E value_;
};

}  // namespace ebb
