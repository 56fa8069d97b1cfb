// Flags that have no effect beside others.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace ebb::cli {

// Throws Error if one of the named fields is not as in `plain`, the same struct by default:
// "generate: --fit has no effect without --init".
void check_unused(const std::vector<Field>& given, const std::vector<Field>& plain,
                  std::initializer_list<std::string_view> names, std::string_view why);

}  // namespace ebb::cli
