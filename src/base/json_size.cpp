#include "base/json_size.h"

#include <algorithm>
#include <vector>

namespace ebb {

JsonSize json_size(std::string_view text) {
  JsonSize out;
  std::vector<size_t> names{0};  // of what is open, the outermost first
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ':') out.names = std::max(out.names, ++names.back());
    if (c == '[' || c == '{' || c == ',') ++out.values;
    if (c == '[' || c == '{') names.push_back(0);
    if ((c == ']' || c == '}') && names.size() > 1) names.pop_back();
    out.depth = std::max(out.depth, names.size() - 1);
  }
  return out;
}

}  // namespace ebb
