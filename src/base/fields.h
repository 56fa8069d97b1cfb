// Fields: one list per struct gives flags, help, JSON, text, equality and hash.
//
//   struct DiTConfig {
//     int64_t depth = 28;
//     void fields(auto&& f) { f("depth", depth, "transformer blocks"); }
//   };
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ebb {

// A field type that brings its own text form (e.g. Expr).
class TextValue {
 public:
  virtual ~TextValue() = default;
  virtual std::string text() const = 0;
  virtual void parse(std::string_view text) = 0;  // throws Error
};

using FieldRef = std::variant<int64_t*, double*, bool*, std::string*, std::vector<int64_t>*,
                              std::vector<double>*, TextValue*>;

struct Field {
  std::string name;
  FieldRef ref;
  std::string help;
};

// The fields of `s`, in order; they point into `s`.
template <class S>
std::vector<Field> fields_of(S& s) {
  std::vector<Field> out;
  s.fields([&](std::string_view name, auto& member, std::string_view help = {}) {
    out.push_back({std::string(name), FieldRef(&member), std::string(help)});
  });
  return out;
}

// The value as text: 3, 0.1, true, name, [1,2,3]. Doubles print with the fewest digits that read
// back to the same value.
std::string field_text(const Field& field);

// Sets the field from text. Throws Error naming the field and what was expected, or as its
// TextValue does.
void set_field(const Field& field, std::string_view text);

// "{a=1 b=[2,3]}": all the fields, in order; "" if there are none.
std::string fields_text(const std::vector<Field>& fields);

// Reads what fields_text wrote. Unknown names are errors that suggest the nearest.
void parse_fields(const std::vector<Field>& fields, std::string_view text);

// Finds the field called `name`. Throws Error with the nearest name.
const Field& find_field(const std::vector<Field>& fields, std::string_view name,
                        std::string_view subject);

// The shortest text that reads back as exactly `v`.
std::string number_text(double v);

// Reads a number; throws Error naming `subject` if `text` is not wholly one.
double parse_number(std::string_view text, std::string_view subject);
int64_t parse_integer(std::string_view text, std::string_view subject);
// The number that all of `text` is; none: it is something else.
std::optional<double> as_number(std::string_view text);

}  // namespace ebb
