#include "base/enum_field.h"

#include "base/error.h"
#include "base/text.h"

namespace ebb {

size_t index_of(std::string_view name, std::string_view subject,
                std::span<const std::string_view> names) {
  const auto at = std::ranges::find(names, name);
  if (at == names.end())
    fail(subject, " must be ", separated(names.first(names.size() - 1), ", "), " or ", names.back(),
         " (got '", name, "')");
  return static_cast<size_t>(at - names.begin());
}

}  // namespace ebb
