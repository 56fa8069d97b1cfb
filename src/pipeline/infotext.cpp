#include "pipeline/infotext.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/names.h"
#include "base/parse_json.h"
#include "base/utf8.h"

namespace ebb {
namespace {

using Json = nlohmann::json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

constexpr std::string_view negative_mark = "Negative prompt:";

std::string quoted(const std::string& value) {
  if (value.find_first_of(",:\n\"") == std::string::npos) return value;
  return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool in_key(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ' ' || c == '-' ||
         c == '/' || static_cast<unsigned char>(c) >= 0x80;
}

// The end of a JSON string that starts `text`, behind its quote; npos if it does not end.
size_t string_end(std::string_view text) {
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  }
  return text.npos;
}

// The pairs of a line; what is none of them is skipped up to the next comma.
Pairs pairs_of(std::string_view line) {
  Pairs out;
  while (!line.empty()) {
    const size_t colon = line.find(':');
    if (colon == line.npos) break;
    const std::string_view key = trimmed(line.substr(0, colon));
    if (key.empty() || !std::ranges::all_of(key, in_key)) {
      const size_t comma = line.find(',');
      if (comma == line.npos) break;
      line.remove_prefix(comma + 1);
      continue;
    }
    line = line.substr(colon + 1);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    size_t end = line.starts_with('"') ? string_end(line) : line.npos;
    std::optional<std::string> value;
    if (end != line.npos) {
      const Json j = parse_json<Json>(line.substr(0, end));
      if (j.is_string()) value = j.get<std::string>();
    }
    if (!value) {
      end = std::min(line.find(','), line.size());
      value = std::string(trimmed(line.substr(0, end)));
    }
    out.emplace_back(std::string(key), *value);
    line.remove_prefix(end);
    if (const size_t comma = line.find(','); comma != line.npos)
      line.remove_prefix(comma + 1);
    else
      line = {};
  }
  return out;
}

}  // namespace

std::string Infotext::value(std::string_view key) const {
  const auto at = std::ranges::find_if(values, [&](const auto& v) { return v.first == key; });
  return at == values.end() ? std::string() : at->second;
}

std::string infotext(const Infotext& text) {
  std::string out = text.prompt;
  if (!text.negative.empty()) out += "\n" + std::string(negative_mark) + " " + text.negative;
  const char* before = "\n";
  for (const auto& [key, value] : text.values) {
    out += before + key + ": " + quoted(value);
    before = ", ";
  }
  return std::string(trimmed(out));
}

Infotext parse_infotext(std::string_view text) {
  const std::string whole = repaired_utf8(trimmed(text));
  std::string_view rest = whole;
  const size_t last = rest.rfind('\n');
  Infotext out;
  constexpr size_t fewest = 3;
  Pairs values = pairs_of(last == rest.npos ? rest : rest.substr(last + 1));
  if (values.size() >= fewest) {
    out.values = std::move(values);
    rest = last == rest.npos ? std::string_view() : rest.substr(0, last);
  }
  size_t mark = rest.starts_with(negative_mark) ? 0 : rest.npos;
  if (mark == rest.npos) {
    const size_t line = rest.find("\n" + std::string(negative_mark));
    if (line != rest.npos) mark = line + 1;
  }
  out.prompt = trimmed(rest.substr(0, mark));
  if (mark != rest.npos) out.negative = trimmed(rest.substr(mark + negative_mark.size()));
  return out;
}

}  // namespace ebb
