// Errors: one exception type and one grammar, `<op>: <rule> (<numbers>)  <operands>  at <path>`.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace ebb {

// Thrown for everything the user or the machine can get wrong. The text names the subject, the
// broken rule and the numbers; it is shown as is.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Streams every part in order into one string.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// Throws Error with every part streamed in order.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  throw Error(str(parts...));
}

// Throws Error unless `ok`.
template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(parts...);
}

}  // namespace ebb
