#include "base/json_size.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace ebb {

JsonSize json_size(std::string_view text) {
  JsonSize out;
  std::array<size_t, json_depth_limit + 1> names{};  // of what is open, by its depth
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ':' && depth < names.size()) out.names = std::max(out.names, ++names[depth]);
    if (c == '[' || c == '{' || c == ',') ++out.values;
    if (c == '[' || c == '{') {
      if (++depth < names.size()) names[depth] = 0;
      out.depth = std::max(out.depth, depth);
    }
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return out;
}

}  // namespace ebb
