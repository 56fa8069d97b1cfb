#include "io/json_cursor.h"

#include <cstdio>
#include <limits>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace ebb::io {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<uint8_t>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string shown(std::string_view text) {
  const bool cut = text.size() > 200;
  const std::string inner = json_string(text.substr(0, 200));
  return "'" + inner.substr(1, inner.size() - 2) + (cut ? "...'" : "'");
}

JsonCursor::JsonCursor(std::string_view text, std::string subject, std::string file)
    : text_(text), subject_(std::move(subject)), file_(std::move(file)) {
  while (at_ < text_.size()) {
    const bool ascii = static_cast<uint8_t>(text_[at_]) < 0x80;
    const size_t n = ascii ? 1 : utf8_length(text_.substr(at_));
    if (n == 0) failed("must be valid UTF-8");
    at_ += n;
  }
  at_ = 0;
}

void JsonCursor::failed(std::string_view rule) const {
  fail(subject_, ": ", rule, " (byte ", at_, ")  ", file_);
}

void JsonCursor::space() {
  while (at_ < text_.size() &&
         std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos)
    ++at_;
}

// What stands at the cursor, for errors.
std::string_view JsonCursor::found() const {
  if (at_ >= text_.size()) return "the end";
  const char c = text_[at_];
  if (c == '{') return "an object";
  if (c == '[') return "an array";
  if (c == '"') return "a string";
  if (c == '-' || is_digit(c)) return "a number";
  if (text_.substr(at_, 4) == "null") return "null";
  if (text_.substr(at_, 4) == "true" || text_.substr(at_, 5) == "false") return "a bool";
  return "something else";
}

void JsonCursor::expect(char c, std::string_view what, std::string_view kind) {
  space();
  if (at_ >= text_.size() || text_[at_] != c)
    failed(str(what, " must be ", kind, ", found ", found()));
  ++at_;
}

void JsonCursor::object(std::string_view what,
                        const std::function<void(const std::string& key)>& member) {
  expect('{', what, "an object");
  std::unordered_set<std::string> keys;
  space();
  if (peek() == '}') {
    ++at_;
    return;
  }
  while (true) {
    const std::string key = string("a key");
    if (!keys.insert(key).second) failed(str(what, " must not have a key twice: ", shown(key)));
    if (keys.size() > json_member_limit)
      failed(str(what, " must have at most ", json_member_limit, " members"));
    expect(':', "a key", "followed by ':'");
    member(key);
    space();
    const char c = peek();
    if (c != ',' && c != '}') failed(str(what, " must go on with ',' or '}', found ", found()));
    ++at_;
    if (c == '}') return;
  }
}

void JsonCursor::array(std::string_view what, const std::function<void(int64_t i)>& element) {
  expect('[', what, "an array");
  space();
  if (peek() == ']') {
    ++at_;
    return;
  }
  for (int64_t i = 0;; ++i) {
    element(i);
    space();
    const char c = peek();
    if (c != ',' && c != ']') failed(str(what, " must go on with ',' or ']', found ", found()));
    ++at_;
    if (c == ']') return;
  }
}

bool JsonCursor::at_array() {
  space();
  return peek() == '[';
}

std::string JsonCursor::string(std::string_view what) {
  expect('"', what, "a string");
  std::string out;
  while (true) {
    if (at_ >= text_.size()) failed(str(what, ": string has no end"));
    const char c = text_[at_];
    if (static_cast<uint8_t>(c) < 0x20) failed(str(what, ": string has a control character"));
    ++at_;
    if (c == '"') return out;
    if (c == '\\') {
      escape(out);
    } else {
      out += c;
    }
  }
}

uint32_t JsonCursor::four_hex_digits() {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = peek();
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) {
      v = v << 4 | static_cast<uint32_t>(c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      v = v << 4 | static_cast<uint32_t>(lower - 'a' + 10);
    } else {
      failed("\\u must have four hexadecimal digits");
    }
    ++at_;
  }
  return v;
}

void JsonCursor::escape(std::string& out) {
  constexpr std::string_view names = "\"\\/bfnrt", values = "\"\\/\b\f\n\r\t";
  const char c = peek();
  if (const size_t i = names.find(c); at_ < text_.size() && i != std::string_view::npos) {
    ++at_;
    out += values[i];
    return;
  }
  if (c != 'u') failed("unknown escape in a string");
  ++at_;
  uint32_t code = four_hex_digits();
  if (code >= 0xDC00 && code <= 0xDFFF) failed("\\u must not be a lone surrogate");
  if (code >= 0xD800 && code <= 0xDBFF) {
    if (text_.substr(at_, 2) != "\\u") failed("\\u must not be a lone surrogate");
    at_ += 2;
    const uint32_t low = four_hex_digits();
    if (low < 0xDC00 || low > 0xDFFF) failed("\\u must not be a lone surrogate");
    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(out, code);
}

int64_t JsonCursor::integer(std::string_view what) {
  space();
  if (peek() == '-') failed(str(what, " must not be negative"));
  if (!is_digit(peek())) failed(str(what, " must be an integer, found ", found()));
  const size_t start = at_;
  int64_t v = 0;
  while (is_digit(peek())) {
    if (__builtin_mul_overflow(v, int64_t{10}, &v) ||
        __builtin_add_overflow(v, int64_t{peek() - '0'}, &v))
      failed(str(what, " must be below 2^63"));
    ++at_;
  }
  if (text_[start] == '0' && at_ - start > 1) failed(str(what, " must not start with 0"));
  const char c = peek();
  if (c == '.' || c == 'e' || c == 'E')
    failed(str(what, " must be an integer without fraction or exponent"));
  return v;
}

bool JsonCursor::digits() {
  const size_t start = at_;
  while (is_digit(peek())) ++at_;
  return at_ > start;
}

void JsonCursor::skip_number() {
  const size_t start = at_;
  if (peek() == '-') ++at_;
  const size_t first = at_;
  bool ok = digits() && (text_[first] != '0' || at_ - first == 1);
  if (ok && peek() == '.') {
    ++at_;
    ok = digits();
  }
  if (ok && (peek() == 'e' || peek() == 'E')) {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    ok = digits();
  }
  if (!ok) {
    at_ = start;
    failed("malformed number");
  }
}

void JsonCursor::skip_word(std::string_view word) {
  if (text_.substr(at_, word.size()) != word) failed("malformed value");
  at_ += word.size();
}

void JsonCursor::skip(int depth) {
  space();
  if (depth <= 0) failed("nested too deeply");
  switch (peek()) {
    case '{': return object("an object", [&](const std::string&) { skip(depth - 1); });
    case '[': return array("an array", [&](int64_t) { skip(depth - 1); });
    case '"': string("a value"); return;
    case 't': return skip_word("true");
    case 'f': return skip_word("false");
    case 'n': return skip_word("null");
    default: return skip_number();
  }
}

void JsonCursor::end(std::string_view allowed) {
  while (at_ < text_.size() && allowed.find(text_[at_]) != std::string_view::npos) ++at_;
  if (at_ < text_.size()) failed("only padding may follow the closing brace");
}

}  // namespace ebb::io
