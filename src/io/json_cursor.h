// A strict JSON reader (RFC 8259) led by the caller's schema: nothing is built, so that a hostile
// text costs no more memory than its keys, and its nesting is bounded by the schema.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ebb::io {

constexpr size_t json_member_limit = 1'000'000;  // of an object

// Every method reads one value at the cursor or throws Error "<subject>: <rule> (byte <n>) <file>".
// `what` names the value in those errors.
class JsonCursor {
 public:
  // Refuses invalid UTF-8. `text` must outlive the cursor.
  JsonCursor(std::string_view text, std::string subject, std::string file);

  // Calls member(key) with the cursor at each value; member must read it. Duplicate keys, and more
  // than json_member_limit, are refused.
  void object(std::string_view what, const std::function<void(const std::string& key)>& member);
  // Calls element(i) with the cursor at each value.
  void array(std::string_view what, const std::function<void(int64_t i)>& element);
  std::string string(std::string_view what);
  // A plain non-negative integer below 2^63: no sign, fraction, exponent or leading zero.
  int64_t integer(std::string_view what);
  // Whether the next value is an array.
  bool at_array();
  // Any value, checked and dropped; refused when nested deeper than `depth`.
  void skip(int depth = 8);
  // Nothing may follow but `allowed` characters.
  void end(std::string_view allowed);

  [[noreturn]] void failed(std::string_view rule) const;

 private:
  void space();
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void expect(char c, std::string_view what, std::string_view kind);
  std::string_view found() const;
  void escape(std::string& out);
  uint32_t four_hex_digits();
  void skip_number();
  void skip_word(std::string_view word);
  bool digits();

  std::string_view text_;
  size_t at_ = 0;
  std::string subject_;
  std::string file_;
};

// `text` as a JSON string with its quotes; it must be valid UTF-8.
std::string json_string(std::string_view text);

// 'text' for an error: single quotes, control characters escaped, cut after 200 bytes.
std::string shown(std::string_view text);

}  // namespace ebb::io
