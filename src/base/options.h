// Options: fields of a struct, given by name as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/fields.h"

namespace ebb {

// Options by name, as text; of two with one name the last counts.
using OptionTexts = std::vector<std::pair<std::string, std::string>>;

// From "name=value,name=[1,2]"; "" is none. Blanks may stand around names and values. What a comma
// parts and has no "=" belongs to the value before: "sigmas=5,1,0,rho=7" are two. Throws Error,
// naming `subject`, also for a name that stands twice.
OptionTexts parse_options(std::string_view text, std::string_view subject);

// A value of the type that an option takes.
using OptionValue =
    std::variant<std::string, int64_t, double, bool, std::vector<int64_t>, std::vector<double>>;

struct Option {
  std::string name, value, help;  // value: the default
  OptionValue typed = {};         // the same; "" of types with a text of their own
};

// Sets the fields that `texts` name. Names may have any case. Throws Error, naming `subject`, for
// unknown names (with the nearest) and for text that is no such value.
void set_options(const std::vector<Field>& fields, const OptionTexts& texts,
                 std::string_view subject);

// Throws Error, as set_options does, unless the option is one of `known` and the text such a value;
// says nothing on how values go together.
void check_option(const std::vector<Option>& known, const OptionTexts::value_type& text,
                  std::string_view subject);

// What there is to set.
std::vector<Option> describe(const std::vector<Field>& fields);
// With other defaults: those of a name that stands for options.
std::vector<Option> with_defaults(std::vector<Option> options, const OptionTexts& defaults);

// A struct with fields() and, to refuse values, check(), set from `texts`.
template <class Options>
Options read_options(const OptionTexts& texts, std::string_view subject) {
  Options o;
  set_options(fields_of(o), texts, subject);
  if constexpr (requires { o.check(); }) o.check();
  return o;
}

struct NoOptions {
  void fields(auto&&) {}
};

template <class Options>
std::vector<Option> describe() {
  Options o;
  return describe(fields_of(o));
}

}  // namespace ebb
