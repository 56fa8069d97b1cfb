// multipart/form-data (RFC 7578), of a whole body.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ebb::server {

struct Part {
  std::string name, file, type;  // `file`: "" where it is none
  std::string_view body;         // of the body that was read
};

// `type`: the header Content-Type. Throws HttpFault 400: for a boundary that is missing or longer
// than 70 signs, more than 64 parts, text before the first one, a missing end.
std::vector<Part> read_multipart(std::string_view type, std::string_view body);

}  // namespace ebb::server
