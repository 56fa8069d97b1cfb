#include "apps/server/base64.h"

#include <array>

namespace ebb::server {
namespace {

constexpr std::string_view digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t blank = -2;

constexpr std::array<int8_t, 256> values = [] {
  std::array<int8_t, 256> out{};
  out.fill(-1);
  for (size_t i = 0; i < digits.size(); ++i)
    out[static_cast<unsigned char>(digits[i])] = static_cast<int8_t>(i);
  for (const char c : {' ', '\t', '\r', '\n'}) out[static_cast<unsigned char>(c)] = blank;
  return out;
}();

}  // namespace

std::string base64(std::span<const uint8_t> bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = bytes.size() - i;
    const unsigned b =
        (bytes[i] << 16) | (left > 1 ? bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
    out += digits[b >> 18];
    out += digits[(b >> 12) & 63];
    out += left > 1 ? digits[(b >> 6) & 63] : '=';
    out += left > 2 ? digits[b & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  size_t count = 0, padding = 0;
  for (const char c : text) {
    const int8_t v = values[static_cast<unsigned char>(c)];
    if (v == blank) continue;
    if (c == '=' && ++padding <= 2) continue;
    if (v < 0 || padding > 0) return {};
    bits = (bits << 6) | static_cast<uint32_t>(v);
    if (++count % 4 == 0)
      for (const int shift : {16, 8, 0}) out += static_cast<char>(bits >> shift);
  }
  const size_t rest = count % 4;
  if (rest == 1 || (padding > 0 && (rest + padding) % 4 != 0)) return {};
  if (rest == 2) out += static_cast<char>(bits >> 4);
  if (rest == 3) out += static_cast<char>(bits >> 10), out += static_cast<char>(bits >> 2);
  return out;
}

}  // namespace ebb::server
