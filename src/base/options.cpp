#include "base/options.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "base/names.h"

namespace ebb {
namespace {

OptionValue value_of(const Field& f) {
  return std::visit(
      [](const auto* v) {
        if constexpr (std::is_same_v<decltype(v), const TextValue*>)
          return OptionValue();
        else
          return OptionValue(*v);
      },
      f.ref);
}

Field field_of(Option& o) {
  const FieldRef ref = std::visit([](auto& v) { return FieldRef(&v); }, o.typed);
  return {o.name, ref, o.help};
}

// In any case.
const Field& find_option(const std::vector<Field>& fields, std::string_view name,
                         std::string_view subject) {
  std::vector<std::string> known;
  for (const Field& f : fields) known.push_back(f.name);
  const size_t at = find_name(name, known);
  return at < known.size() ? fields[at] : find_field(fields, name, subject);
}

// Infinite is a setting only where it is the usual one; what is no number is none.
bool holds_no_finite(const Field& f) {
  if (const auto* v = std::get_if<double*>(&f.ref)) return !std::isfinite(**v);
  if (const auto* v = std::get_if<std::vector<double>*>(&f.ref))
    return !std::ranges::all_of(**v, [](double x) { return std::isfinite(x); });
  return false;
}

}  // namespace

void set_options(const std::vector<Field>& fields, const OptionTexts& texts,
                 std::string_view subject) {
  for (const auto& [name, text] : texts) {
    require(!fields.empty(), subject, ": it has no options (got ", name, ")");
    const Field& f = find_option(fields, name, subject);
    const bool usual = holds_no_finite(f);
    set_field({str(subject, ": ", f.name), f.ref, f.help}, text);
    require(usual || !holds_no_finite(f), subject, ": ", name, " must be finite (got ", text, ")");
  }
}

std::vector<Option> describe(const std::vector<Field>& fields) {
  std::vector<Option> out;
  for (const Field& f : fields) out.push_back({f.name, field_text(f), f.help, value_of(f)});
  return out;
}

void check_option(const std::vector<Option>& known, const OptionTexts::value_type& text,
                  std::string_view subject) {
  std::vector<Option> copies = known;
  std::vector<Field> fields;
  for (Option& o : copies) fields.push_back(field_of(o));
  set_options(fields, {text}, subject);
}

std::vector<Option> with_defaults(std::vector<Option> options, const OptionTexts& defaults) {
  for (const auto& [name, text] : defaults)
    for (Option& o : options) {
      if (o.name != name) continue;
      const Field f = field_of(o);
      set_field(f, text);
      o.value = field_text(f);
    }
  return options;
}

namespace {

// Up to a comma outside of brackets: lists are values too.
size_t part_length(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += (text[i] == '[') - (text[i] == ']');
    if (text[i] == ',' && depth <= 0) return i;
  }
  return text.size();
}

void add_option(OptionTexts& out, std::string_view name, std::string_view value,
                std::string_view subject) {
  for (const auto& [given, first] : out)
    require(small_letters(given) != small_letters(name), subject, ": option '", name,
            "' is given twice ('", first, "', then '", value, "')");
  out.emplace_back(name, value);
}

}  // namespace

OptionTexts parse_options(std::string_view text, std::string_view subject) {
  OptionTexts out;
  text = trimmed(text);
  const std::string_view all = text;
  require(!text.ends_with(','), subject, ": no option follows the last comma  got '", all, "'");
  while (!text.empty()) {
    const size_t end = part_length(text);
    const std::string_view part = trimmed(text.substr(0, end));
    require(!part.empty(), subject, ": no option stands before a comma  got '", all, "'");
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos && !out.empty()) {
      out.back().second.append(",").append(part);
    } else {
      require(equals != std::string_view::npos && equals > 0, subject,
              ": options must be name=value  got '", part, "'");
      add_option(out, trimmed(part.substr(0, equals)), trimmed(part.substr(equals + 1)), subject);
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace ebb
