// Options: fields of a struct, given by name as text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fields.h"

namespace ebb {

// Options by name, as text; of two with one name the last counts.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

// From "name=value,name=value"; "" is none. Throws Error, naming `subject`.
OptionTexts parse_options(std::string_view text, std::string_view subject);

struct Option {
  std::string name, value, help;  // value: the default
};

// Sets the fields that `texts` name. Throws Error, naming `subject`, for unknown names (with the
// nearest) and for text that is no such value.
void set_options(const std::vector<Field>& fields, const OptionTexts& texts,
                 std::string_view subject);

// What there is to set.
std::vector<Option> describe(const std::vector<Field>& fields);

// A struct with fields() and, to refuse values, check(), set from `texts`.
template <class Options>
Options read_options(const OptionTexts& texts, std::string_view subject) {
  Options o;
  set_options(fields_of(o), texts, subject);
  if constexpr (requires { o.check(); }) o.check();
  return o;
}

template <class Options>
std::vector<Option> describe() {
  Options o;
  return describe(fields_of(o));
}

}  // namespace ebb
