#include "apps/server/multipart.h"

#include <algorithm>

#include "apps/server/fault.h"
#include "base/names.h"

namespace ebb::server {
namespace {

constexpr size_t most_parts = 64, most_head = 4096, most_boundary = 70;

[[noreturn]] void refuse(const std::string& sentence) {
  throw HttpFault(400, "bad_request", "multipart: " + sentence);
}

// Of "form-data; name=\"a\"; filename=b": the value behind `name`=, "" where there is none.
std::string parameter(std::string_view text, std::string_view name) {
  for (size_t at = text.find(';'); at != text.npos;) {
    text.remove_prefix(at + 1);
    const size_t equals = text.find('=');
    if (equals == text.npos) return "";
    const bool own = small_letters(std::string(trimmed(text.substr(0, equals)))) == name;
    text = text.substr(equals + 1);
    std::string value;
    if (text.starts_with('"')) {
      size_t i = 1;
      for (; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) ++i;
        value += text[i];
      }
      text.remove_prefix(std::min(i + 1, text.size()));
      at = text.find(';');
    } else {
      at = text.find(';');
      value = trimmed(text.substr(0, at));
    }
    if (own) return value;
  }
  return "";
}

Part part_of(std::string_view text) {
  const size_t end = text.starts_with("\r\n") ? 0 : text.substr(0, most_head).find("\r\n\r\n");
  if (end == text.npos) refuse("a part has no header, or a long one");
  Part out{.name = {}, .file = {}, .type = {}, .body = text.substr(end == 0 ? 2 : end + 4)};
  std::string_view head = text.substr(0, end);
  while (!head.empty()) {
    const size_t line_end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, line_end);
    const size_t colon = std::min(line.find(':'), line.size());
    const std::string name = small_letters(std::string(line.substr(0, colon)));
    const std::string_view value = trimmed(line.substr(std::min(colon + 1, line.size())));
    if (name == "content-disposition")
      out.name = parameter(value, "name"), out.file = parameter(value, "filename");
    if (name == "content-type") out.type = value;
    head.remove_prefix(std::min(line_end + 2, head.size()));
  }
  if (out.name.empty()) refuse("a part has no name");
  return out;
}

}  // namespace

std::vector<Part> read_multipart(std::string_view type, std::string_view body) {
  const std::string boundary = parameter(type, "boundary");
  if (boundary.empty() || boundary.size() > most_boundary ||
      boundary.find_first_of("\r\n") != boundary.npos)
    refuse("the boundary must have 1 to 70 signs");
  const std::string mark = "\r\n--" + boundary;
  if (!body.starts_with(std::string_view(mark).substr(2))) refuse("it does not begin with a part");
  body.remove_prefix(mark.size() - 2);
  std::vector<Part> out;
  while (!body.starts_with("--")) {
    if (!body.starts_with("\r\n")) refuse("a boundary is not followed by a line end");
    if (out.size() == most_parts) refuse("more than 64 parts");
    body.remove_prefix(2);
    const size_t end = body.find(mark);
    if (end == body.npos) refuse("the end is missing");
    out.push_back(part_of(body.substr(0, end)));
    body.remove_prefix(end + mark.size());
  }
  return out;
}

}  // namespace ebb::server
