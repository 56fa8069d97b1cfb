// Flags that have no effect beside others.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace ebb::cli {

// Throws Error if one of the named fields is not as in `plain`, the same struct by default:
// "generate: --fit has no effect without --init".
void check_unused(const std::vector<Field>& given, const std::vector<Field>& plain,
                  std::initializer_list<std::string_view> names, std::string_view why);

// Where `applies`, the fields have no effect "without" or "with" the other.
struct UnusedRule {
  bool applies;
  std::vector<std::string_view> fields;
  std::string how, other;
};
// A field that has no effect: "strength", "without", "init".
struct UnusedField {
  std::string field, how, other;
};
// The first that is not as in `plain` though a rule says that it has no effect.
std::optional<UnusedField> unused_field(const std::vector<Field>& given,
                                        const std::vector<Field>& plain,
                                        std::span<const UnusedRule> rules);
// Throws Error: "generate: --strength has no effect without --init".
void require_used(const std::optional<UnusedField>& unused);

}  // namespace ebb::cli
