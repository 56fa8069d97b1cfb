#include "io/exif_text.h"

#include <nlohmann/json.hpp>

#include "base/parse_json.h"
#include "base/utf8.h"
#include "io/tiff.h"

namespace ebb::io {
namespace {

using Bytes = std::vector<uint8_t>;
using Texts = std::map<std::string, std::string>;

constexpr uint16_t tag_description = 0x010E, tag_make = 0x010F, tag_model = 0x0110,
                   tag_software = 0x0131, tag_exif = 0x8769, tag_user_comment = 0x9286;
constexpr uint16_t type_ascii = 2, type_long = 4, type_undefined = 7;
constexpr size_t entry_size = 12;
// The character code of a UserComment; all have eight bytes.
constexpr std::string_view unicode_code("UNICODE\0", 8), ascii_code("ASCII\0\0\0", 8),
    undefined_code("\0\0\0\0\0\0\0\0", 8);

void append_big(Bytes& out, uint32_t v, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<uint8_t>(v >> 8 * i));
}

struct Entry {
  uint16_t tag, type;
  Bytes value;
};

Bytes ascii(std::string_view text) {
  Bytes out(text.begin(), text.end());
  out.push_back(0);
  return out;
}

// Directories begin on even bytes, and their values follow them.
Bytes directory(const std::vector<Entry>& entries, uint32_t at) {
  Bytes out, values;
  append_big(out, static_cast<uint32_t>(entries.size()), 2);
  const auto behind = static_cast<uint32_t>(at + 2 + entries.size() * entry_size + 4);
  for (const Entry& e : entries) {
    append_big(out, e.tag, 2);
    append_big(out, e.type, 2);
    append_big(out, static_cast<uint32_t>(e.type == type_long ? 1 : e.value.size()), 4);
    if (e.value.size() <= 4) {
      out.insert(out.end(), e.value.begin(), e.value.end());
      append_big(out, 0, static_cast<int>(4 - e.value.size()));
      continue;
    }
    append_big(out, behind + static_cast<uint32_t>(values.size()), 4);
    values.insert(values.end(), e.value.begin(), e.value.end());
    append_big(values, 0, values.size() % 2);
  }
  append_big(out, 0, 4);  // no further directory
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

Bytes user_comment(const std::string& text) {
  Bytes out(unicode_code.begin(), unicode_code.end());
  for (const char32_t c : decode_utf8(text)) {
    if (c < 0x10000) {
      append_big(out, c, 2);
    } else {
      append_big(out, 0xD800 + ((c - 0x10000) >> 10), 2);
      append_big(out, 0xDC00 + ((c - 0x10000) & 0x3FF), 2);
    }
  }
  return out;
}

// UTF-16 to UTF-8. The order is the file's by the standard, but programs differ: characters below
// 256, which every text of settings has most of, show it.
std::string from_utf16(std::span<const uint8_t> bytes) {
  size_t big = 0, little = 0;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    big += bytes[i] == 0 ? 1 : 0, little += bytes[i + 1] == 0 ? 1 : 0;
  const bool low_first = little > big;
  const auto unit = [&](size_t i) {
    return static_cast<char32_t>(low_first ? bytes[i] | bytes[i + 1] << 8
                                           : bytes[i] << 8 | bytes[i + 1]);
  };
  std::string out;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    char32_t c = unit(i);
    const bool high = c >= 0xD800 && c < 0xDC00;
    if (high && i + 3 < bytes.size() && (unit(i + 2) & 0xFC00) == 0xDC00) {
      c = 0x10000 + ((c - 0xD800) << 10) + (unit(i + 2) - 0xDC00);
      i += 2;
    } else if (c >= 0xD800 && c < 0xE000) {
      c = 0xFFFD;
    }
    if (c != 0) append_utf8(out, c);
  }
  return out;
}

std::string from_user_comment(std::span<const uint8_t> bytes) {
  if (bytes.size() < unicode_code.size()) return "";
  const auto code = bytes.first(unicode_code.size());
  const auto rest = bytes.subspan(unicode_code.size());
  const auto is = [&](std::string_view name) {
    return std::equal(code.begin(), code.end(), name.begin());
  };
  if (is(unicode_code)) return from_utf16(rest);
  if (is(ascii_code) || is(undefined_code))
    return repaired_utf8({reinterpret_cast<const char*>(rest.data()), rest.size()});
  return "";
}

// The value of a tag in the directory at `at`; empty where there is none.
std::span<const uint8_t> value_of(const Tiff& tiff, size_t at, uint16_t tag) {
  const uint32_t count = tiff.number(at, 2).value_or(0);
  for (uint32_t i = 0; i < count; ++i) {
    const size_t entry = at + 2 + i * entry_size;
    const auto found = tiff.number(entry, 2), type = tiff.number(entry + 2, 2),
               length = tiff.number(entry + 4, 4), offset = tiff.number(entry + 8, 4);
    if (!offset) return {};
    if (*found != tag) continue;
    if (*type == type_long) return tiff.bytes.subspan(entry + 8, 4);
    if (*length <= 4) return tiff.bytes.subspan(entry + 8, *length);
    if (*offset > tiff.bytes.size() || *length > tiff.bytes.size() - *offset) return {};
    return tiff.bytes.subspan(*offset, *length);
  }
  return {};
}

std::string ascii_of(std::span<const uint8_t> value) {
  std::string_view text(reinterpret_cast<const char*>(value.data()), value.size());
  return repaired_utf8(text.substr(0, text.find('\0')));
}

void read_description(const std::string& text, Texts& out) {
  const auto j = parse_json(text);
  if (!j.is_object()) {
    out.emplace("description", text);
    return;
  }
  for (const auto& [key, value] : j.items())
    out.emplace(key, value.is_string() ? value.get<std::string>() : value.dump());
}

// "prompt:{...}", as ComfyUI writes into the tags of a camera (SaveAnimatedWEBP).
void read_graph(const std::string& text, Texts& out) {
  for (const std::string_view key : {"prompt", "workflow"})
    if (text.starts_with(key) && text.substr(key.size()).starts_with(":{"))
      out.emplace(key, text.substr(key.size() + 1));
}

}  // namespace

Bytes exif_of_text(const Texts& text) {
  nlohmann::json others = nlohmann::json::object();
  std::vector<Entry> entries;
  for (const auto& [key, value] : text)
    if (key != "parameters" && key != "Software") others[key] = value;
  using Json = nlohmann::json;
  if (!others.empty())
    entries.push_back({tag_description, type_ascii,
                       ascii(others.dump(-1, ' ', true, Json::error_handler_t::replace))});
  if (const auto at = text.find("Software"); at != text.end())
    entries.push_back({tag_software, type_ascii, ascii(at->second)});
  Bytes out{'M', 'M', 0, 42, 0, 0, 0, 8};
  const auto comment = text.find("parameters");
  if (comment == text.end()) {
    const Bytes only = directory(entries, 8);
    out.insert(out.end(), only.begin(), only.end());
    return out;
  }
  entries.push_back({tag_exif, type_long, Bytes(4)});
  const auto second = static_cast<uint32_t>(8 + directory(entries, 8).size());
  entries.back().value.clear();
  append_big(entries.back().value, second, 4);
  for (const Bytes& part :
       {directory(entries, 8),
        directory({{tag_user_comment, type_undefined, user_comment(comment->second)}}, second)})
    out.insert(out.end(), part.begin(), part.end());
  return out;
}

Texts text_of_exif(std::span<const uint8_t> exif) {
  Texts out;
  const std::optional<Tiff> tiff = Tiff::open(exif);
  const auto first = tiff ? tiff->number(4, 4) : std::nullopt;
  if (!first) return out;
  if (const std::string s = ascii_of(value_of(*tiff, *first, tag_software)); !s.empty())
    out.emplace("Software", s);
  if (const auto at = value_of(*tiff, *first, tag_exif); at.size() == 4) {
    const size_t offset = *Tiff{at, tiff->little}.number(0, 4);
    const std::string s = from_user_comment(value_of(*tiff, offset, tag_user_comment));
    if (!s.empty()) out.emplace("parameters", s);
  }
  if (const std::string s = ascii_of(value_of(*tiff, *first, tag_description)); !s.empty())
    read_description(s, out);
  for (const uint16_t tag : {tag_make, tag_model})
    read_graph(ascii_of(value_of(*tiff, *first, tag)), out);
  return out;
}

}  // namespace ebb::io
