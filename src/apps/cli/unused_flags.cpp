#include "apps/cli/unused_flags.h"

#include "apps/cli/command.h"
#include "base/error.h"

namespace ebb::cli {

void check_unused(const std::vector<Field>& given, const std::vector<Field>& plain,
                  std::initializer_list<std::string_view> names, std::string_view why) {
  for (size_t i = 0; i < given.size(); ++i)
    for (const std::string_view name : names)
      require(given[i].name != name || field_text(given[i]) == field_text(plain[i]),
              "generate: ", flag_of(given[i].name), " has no effect ", why);
}

}  // namespace ebb::cli
