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

}  // namespace ebb
