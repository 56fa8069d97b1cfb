// by_flag(): an Error about what a flag names says which flag it is.
#pragma once

#include <string>
#include <string_view>
#include <typeinfo>

#include "base/error.h"

namespace ebb {

// What `read` returns; its Error begins with `flag`, "generate: --init", unless it names it.
auto by_flag(std::string_view flag, auto&& read) {
  try {
    return read();
  } catch (const Error& e) {
    std::string_view what = e.what();
    const std::string_view bare = flag.substr(flag.rfind(' ') + 1);
    if (typeid(e) != typeid(Error) || what.find(bare) != what.npos) throw;
    if (constexpr std::string_view model = "model: "; what.starts_with(model))
      what.remove_prefix(model.size());
    fail(flag, ": ", what);
  }
}

}  // namespace ebb
