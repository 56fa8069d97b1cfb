#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace ebb {
namespace {

struct Range {
  unsigned first, last;
};

// Bytes that may follow the lead byte `a` (Unicode, table 3-7).
Range second_bytes(unsigned a) {
  switch (a) {
    case 0xE0: return {0xA0, 0xBF};
    case 0xED: return {0x80, 0x9F};
    case 0xF0: return {0x90, 0xBF};
    case 0xF4: return {0x80, 0x8F};
    default: return {0x80, 0xBF};
  }
}

// Bytes in a sequence that starts with `a`, or 0.
size_t length_of_lead(unsigned a) {
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return 2;
  if (a >= 0xE0 && a <= 0xEF) return 3;
  return a >= 0xF0 && a <= 0xF4 ? 4 : 0;
}

// How many bytes at the start of `s`, which is not empty, begin a well-formed sequence.
size_t well_formed(std::string_view s, size_t length) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const Range second = second_bytes(byte(0));
  size_t n = 1;
  while (n < std::min(length, s.size())) {
    const Range allowed = n == 1 ? second : Range{0x80, 0xBF};
    if (byte(n) < allowed.first || byte(n) > allowed.last) break;
    ++n;
  }
  return n;
}

}  // namespace

size_t utf8_length(std::string_view s) {
  if (s.empty()) return 0;
  const size_t length = length_of_lead(static_cast<uint8_t>(s[0]));
  return length > 0 && well_formed(s, length) == length ? length : 0;
}

bool valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t n = utf8_length(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      put(0xE0 | c >> 12);
    } else {
      put(0xF0 | c >> 18);
      put(0x80 | (c >> 12 & 0x3F));
    }
    put(0x80 | (c >> 6 & 0x3F));
  }
  put(0x80 | (c & 0x3F));
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

std::u32string decode_utf8(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const unsigned a = static_cast<uint8_t>(text[0]);
    const size_t length = length_of_lead(a);
    const size_t n = length == 0 ? 1 : well_formed(text, length);
    if (length == 0 || n < length) {
      out += U'\uFFFD';
    } else {
      char32_t c = length == 1 ? a : a & (0x7Fu >> length);
      for (size_t i = 1; i < length; ++i) c = c << 6 | (static_cast<uint8_t>(text[i]) & 0x3Fu);
      out += c;
    }
    text.remove_prefix(n);
  }
  return out;
}

std::string repaired_utf8(std::string_view text) {
  if (valid_utf8(text)) return std::string(text);
  std::string out;
  for (const char32_t c : decode_utf8(text)) append_utf8(out, c);
  return out;
}

}  // namespace ebb
