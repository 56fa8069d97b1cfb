// HttpFault: an Error with the status that a request is answered with.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace ebb::server {

class HttpFault : public Error {
 public:
  // `code`: a word for programs; `field`: of the request, "" where it is none of them.
  HttpFault(int status, std::string code, const std::string& sentence, std::string field = {})
      : Error(sentence), status(status), code(std::move(code)), field(std::move(field)) {}
  int status;
  std::string code, field;
};

// Throws it: a value of a field that cannot be.
template <class... Parts>
[[noreturn]] void fail_field(const std::string& field, const Parts&... parts) {
  throw HttpFault(422, "invalid_value", str(field, ": ", parts...), field);
}

}  // namespace ebb::server
