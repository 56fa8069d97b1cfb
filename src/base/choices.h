// Choices: texts of a struct that are one of a few names, given in any case.
//
//   void choices(auto&& f) { f("dtype", dtype, {"auto", "f32", "bf16"}); }
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/names.h"

namespace ebb {

// Writes what is one of its names, but for the case, as that stands there.
template <class S>
void resolve(S& s) {
  s.choices([](std::string_view, std::string& text, const std::vector<std::string>& names) {
    const size_t at = find_name(text, names);
    if (at < names.size()) text = names[at];
  });
}

// Throws Error for what is not one of its names as it stands there: what(field), the text and the
// nearest name.
template <class S>
void check_choices(S s, auto&& what) {
  s.choices([&](std::string_view field, const std::string& text,
                const std::vector<std::string>& names) { check_known(what(field), text, names); });
}

}  // namespace ebb
