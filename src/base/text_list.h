// TextList: a field of several texts. As one text they are separated by semicolons; on the command
// line the flag may be repeated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace ebb {

class TextList final : public TextValue {
 public:
  std::vector<std::string> texts;

  std::string text() const override {
    std::string out;
    for (const std::string& t : texts) out += (out.empty() ? "" : ";") + t;
    return out;
  }
  void parse(std::string_view text) override {
    texts.clear();
    while (!text.empty()) {
      const size_t end = text.find(';');
      if (end != 0) texts.emplace_back(text.substr(0, end));
      text = end == std::string_view::npos ? "" : text.substr(end + 1);
    }
  }
};

}  // namespace ebb
