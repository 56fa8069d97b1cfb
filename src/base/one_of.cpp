#include "base/one_of.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ebb {

size_t place_of(std::string_view text, std::string_view what,
                std::span<const std::string_view> names) {
  const auto at = std::ranges::find(names, text);
  if (at == names.end())
    fail(what, " must be ", separated(names.first(names.size() - 1), ", "), " or ", names.back(),
         " (got '", text, "')");
  return static_cast<size_t>(at - names.begin());
}

}  // namespace ebb
