// TextList: a field of several texts. As one text they are separated by semicolons; on the command
// line the flag may be repeated.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/text.h"

namespace ebb {

class TextList final : public TextValue {
 public:
  std::vector<std::string> texts;

  std::string text() const override { return separated(texts, ";"); }
  // An empty text is of no texts. Throws Error for an empty one among several.
  void parse(std::string_view text) override {
    std::vector<std::string> read;
    for (const std::string_view one : items_in(text, ";")) {
      require(!one.empty(), "one of several texts is empty (got '", text, "')");
      read.emplace_back(one);
    }
    texts = std::move(read);
  }
};

}  // namespace ebb
