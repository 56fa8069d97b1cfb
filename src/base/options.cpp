#include "base/options.h"

#include "base/error.h"

namespace ebb {

void set_options(const std::vector<Field>& fields, const OptionTexts& texts,
                 std::string_view subject) {
  for (const auto& [name, text] : texts) {
    require(!fields.empty(), subject, ": it has no options (got ", name, ")");
    set_field(find_field(fields, name, subject), text);
  }
}

std::vector<Option> describe(const std::vector<Field>& fields) {
  std::vector<Option> out;
  for (const Field& f : fields) out.push_back({f.name, field_text(f), f.help});
  return out;
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
