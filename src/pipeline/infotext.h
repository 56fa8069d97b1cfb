// The text of settings that AUTOMATIC1111's web UI writes into pictures, and many programs since:
// the prompt, "Negative prompt: ..." and a line of "Key: value" pairs.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ebb {

struct Infotext {
  std::string prompt, negative;
  std::vector<std::pair<std::string, std::string>> values;  // in order

  // "" where there is no such key.
  std::string value(std::string_view key) const;
};

// Values with a comma, a colon or a line break are written as JSON strings.
std::string infotext(const Infotext& text);
// What infotext() wrote, of any program. A last line with fewer than three pairs is of the prompt,
// as in the web UI. Any text is one.
Infotext parse_infotext(std::string_view text);

}  // namespace ebb
