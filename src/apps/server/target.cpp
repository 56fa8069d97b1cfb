// Targets of requests: percent-decoding, path and query.
#include <algorithm>

#include "apps/server/http.h"
#include "base/utf8.h"

namespace ebb::server {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool clean(std::string_view text) {
  return valid_utf8(text) && std::ranges::none_of(text, [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

}  // namespace

std::optional<std::string> percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return {};
      const int high = digit(text[i + 1]), low = digit(text[i + 2]);
      if (high < 0 || low < 0) return {};
      out += static_cast<char>(16 * high + low);
      i += 2;
    } else {
      out += text[i] == '+' && plus_is_space ? ' ' : text[i];
    }
  }
  return out;
}

bool parse_target(Request& r) {
  const std::string_view target = r.target;
  if (!target.starts_with('/')) return false;
  const size_t mark = std::min(target.find('?'), target.size());
  const auto path = percent_decoded(target.substr(0, mark), false);
  if (!path || !clean(*path)) return false;
  r.path = *path;
  std::string_view rest = target.substr(std::min(mark + 1, target.size()));
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    const size_t equals = std::min(pair.find('='), pair.size());
    const auto name = percent_decoded(pair.substr(0, equals), true);
    const auto value = percent_decoded(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value || !clean(*name) || !clean(*value)) return false;
    if (!pair.empty()) r.query.emplace_back(*name, *value);
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return true;
}

std::string_view Request::header(std::string_view name) const {
  const auto at = std::ranges::find(headers, name, &Headers::value_type::first);
  return at == headers.end() ? std::string_view() : at->second;
}

size_t Request::count(std::string_view name) const {
  return static_cast<size_t>(std::ranges::count(headers, name, &Headers::value_type::first));
}

std::string_view Request::parameter(std::string_view name) const {
  const auto at = std::ranges::find(query, name, &Headers::value_type::first);
  return at == query.end() ? std::string_view() : at->second;
}

}  // namespace ebb::server
