#include "base/fields.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/names.h"
#include "base/optional_text.h"
#include "base/text.h"

namespace ebb {
namespace {

// What all of `text` is, if it is one.
template <class T>
std::optional<T> whole(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T v{};
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, v);
  return error == std::errc() && at == end ? std::optional(v) : std::nullopt;
}

template <class T>
T parse_whole(std::string_view text, std::string_view subject, std::string_view kind) {
  const std::optional<T> v = whole<T>(text);
  require(v.has_value(), subject, ": expected ", kind, " (got '", text, "')");
  return *v;
}

template <class T>
std::vector<T> parse_list(std::string_view text, auto&& item) {
  if (!text.empty() && text.front() == '[' && text.back() == ']')
    text = text.substr(1, text.size() - 2);
  std::vector<T> out;
  for (const std::string_view one : items_in(text, ",")) out.push_back(item(one));
  return out;
}

bool parse_bool(std::string_view text, std::string_view subject) {
  if (text == "true" || text == "1" || text == "on" || text == "yes") return true;
  if (text == "false" || text == "0" || text == "off" || text == "no") return false;
  fail(subject, ": expected on or off (got '", text, "')");
}

struct Printer {
  std::string operator()(const int64_t* v) const { return std::to_string(*v); }
  std::string operator()(const double* v) const { return number_text(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const std::string* v) const { return *v; }
  std::string operator()(const std::vector<int64_t>* v) const {
    return joined('[', separated(*v, ","), ']');
  }
  std::string operator()(const std::vector<double>* v) const {
    return joined('[', separated(*v, ",", number_text), ']');
  }
  std::string operator()(const TextValue* v) const { return v->text(); }
};

struct Setter {
  std::string_view text, name;
  void operator()(int64_t* v) const { *v = parse_integer(text, name); }
  void operator()(double* v) const { *v = parse_number(text, name); }
  void operator()(bool* v) const { *v = parse_bool(text, name); }
  void operator()(std::string* v) const { *v = text; }
  void operator()(std::vector<int64_t>* v) const {
    *v = parse_list<int64_t>(text, [&](std::string_view t) { return parse_integer(t, name); });
  }
  void operator()(std::vector<double>* v) const {
    *v = parse_list<double>(text, [&](std::string_view t) { return parse_number(t, name); });
  }
  void operator()(TextValue* v) const { v->parse(text); }
};

// The length of the value that starts `text`: up to a space outside of brackets.
bool is_left_out(const Field& f) {
  const auto* const value = std::get_if<TextValue*>(&f.ref);
  const auto* const optional = value ? dynamic_cast<const OptionalText*>(*value) : nullptr;
  return optional && optional->empty();
}

size_t value_length(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' || c == '(' || c == '<') ++depth;
    if (c == ']' || c == ')' || c == '>') --depth;
    if (c == ' ' && depth == 0) return i;
  }
  return text.size();
}

}  // namespace

std::string number_text(double v) {
  char buffer[40];
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, v);
  return std::string(buffer, r.ptr);
}

double parse_number(std::string_view text, std::string_view subject) {
  return parse_whole<double>(text, subject, "a number");
}

int64_t parse_integer(std::string_view text, std::string_view subject) {
  return parse_whole<int64_t>(text, subject, "a whole number");
}

std::optional<double> as_number(std::string_view text) { return whole<double>(text); }

std::string field_text(const Field& field) { return std::visit(Printer{}, field.ref); }

void set_field(const Field& field, std::string_view text) {
  std::visit(Setter{text, field.name}, field.ref);
}

std::string fields_text(const std::vector<Field>& fields) {
  if (fields.empty()) return "";
  std::string s;
  for (const Field& f : fields)
    if (!is_left_out(f)) s += (s.empty() ? "{" : " ") + f.name + "=" + field_text(f);
  return s.empty() ? s : s + "}";
}

void parse_fields(const std::vector<Field>& fields, std::string_view text) {
  if (text.empty()) return;
  require(text.size() >= 2 && text.front() == '{' && text.back() == '}',
          "fields: must stand in braces (got '", text, "')");
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const size_t eq = text.find('=');
    require(eq != std::string_view::npos, "fields: expected name=value (got '", text, "')");
    const Field& field = find_field(fields, text.substr(0, eq), "fields");
    text.remove_prefix(eq + 1);
    const size_t length = value_length(text);
    set_field(field, text.substr(0, length));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

const Field& find_field(const std::vector<Field>& fields, std::string_view name,
                        std::string_view subject) {
  // As written: two that differ by case would set it twice.
  std::vector<std::string> known;
  for (const Field& f : fields) {
    if (f.name == name) return f;
    known.push_back(f.name);
  }
  fail_unknown(str(subject, ": unknown field"), name, known);
}

}  // namespace ebb
