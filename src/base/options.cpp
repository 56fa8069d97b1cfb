#include "base/options.h"

#include <algorithm>
#include <type_traits>

#include "base/error.h"

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

}  // namespace

void set_options(const std::vector<Field>& fields, const OptionTexts& texts,
                 std::string_view subject) {
  for (const auto& [name, text] : texts) {
    require(!fields.empty(), subject, ": it has no options (got ", name, ")");
    set_field(find_field(fields, name, subject), text);
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

OptionTexts parse_options(std::string_view text, std::string_view subject) {
  OptionTexts out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    const size_t equals = part.find('=');
    require(equals != std::string_view::npos && equals > 0, subject,
            ": options must be name=value  got '", part, "'");
    out.emplace_back(part.substr(0, equals), part.substr(equals + 1));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace ebb
