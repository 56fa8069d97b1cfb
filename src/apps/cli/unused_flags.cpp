#include "apps/cli/unused_flags.h"

#include <algorithm>

#include "apps/cli/command.h"
#include "base/error.h"

namespace ebb::cli {
namespace {

// The first of the fields that is not as in `plain`; "": all are.
std::string changed_of(const std::vector<Field>& given, const std::vector<Field>& plain,
                       std::span<const std::string_view> names) {
  for (size_t i = 0; i < given.size(); ++i)
    if (std::ranges::find(names, given[i].name) != names.end() &&
        field_text(given[i]) != field_text(plain[i]))
      return given[i].name;
  return "";
}

}  // namespace

void check_unused(const std::vector<Field>& given, const std::vector<Field>& plain,
                  std::initializer_list<std::string_view> names, std::string_view why) {
  const std::string field = changed_of(given, plain, names);
  require(field.empty(), "generate: ", flag_of(field), " has no effect ", why);
}

std::optional<UnusedField> unused_field(const std::vector<Field>& given,
                                        const std::vector<Field>& plain,
                                        std::span<const UnusedRule> rules) {
  for (const UnusedRule& r : rules)
    if (const std::string field = r.applies ? changed_of(given, plain, r.fields) : "";
        !field.empty())
      return UnusedField{field, r.how, r.other};
  return {};
}

void require_used(const std::optional<UnusedField>& unused) {
  if (unused)
    fail("generate: ", flag_of(unused->field), " has no effect ", unused->how, ' ',
         flag_of(unused->other));
}

}  // namespace ebb::cli
