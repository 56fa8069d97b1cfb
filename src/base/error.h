// Errors: one exception type and one grammar, `<op>: <rule> (<numbers>)  <operands>  at <path>`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

namespace ebb {

// Thrown for everything the user or the machine can get wrong. The text names the subject, the
// broken rule and the numbers; it is shown as is.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// One part of a message, written as std::ostream writes it (bytes as numbers): a text, a number,
// anything with a `<<`, which it refers to. Two thousand calls make messages; what they share is
// compiled once.
class MessagePart {
 public:
  template <class T>
  MessagePart(const T& value) {  // NOLINT: implicit, as an argument of a stream is
    if constexpr (std::is_convertible_v<const T&, std::string_view>) {
      const std::string_view text = value;
      set(text.data(), text.size(), write_text);
    } else if constexpr (std::is_same_v<T, char>) {
      set(&value, 1, write_text);
    } else if constexpr (std::is_floating_point_v<T>) {
      number_.real = value;
      write_ = write_real;
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      number_.whole = value;
      write_ = write_signed;
    } else if constexpr (std::is_integral_v<T>) {
      number_.natural = value;
      write_ = write_unsigned;
    } else {
      set(&value, 0, [](std::string& out, const MessagePart& part) {
        part.write_streamed(
            out, [](std::ostream& stream, const void* v) { stream << *static_cast<const T*>(v); });
      });
    }
  }

  void append_to(std::string& out) const { write_(out, *this); }

 private:
  using Write = void(std::string& out, const MessagePart& part);
  void set(const void* text, size_t length, Write* write) {
    text_ = text;
    number_.natural = length;
    write_ = write;
  }
  static Write write_text, write_real, write_signed, write_unsigned;
  void write_streamed(std::string& out, void (*write)(std::ostream& stream, const void* v)) const;

  const void* text_ = nullptr;  // or any value
  union {
    double real;
    int64_t whole;
    uint64_t natural = 0;  // or the length of a text
  } number_;
  Write* write_ = nullptr;
};

// All parts in order.
std::string message(std::initializer_list<MessagePart> parts);
// Throws Error with all parts in order.
[[noreturn]] void fail_with(std::initializer_list<MessagePart> parts);

template <class... Parts>
std::string str(const Parts&... parts) {
  return message({MessagePart(parts)...});
}

template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
  fail_with({MessagePart(parts)...});
}

// Throws Error unless `ok`.
template <class... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail_with({MessagePart(parts)...});
}

}  // namespace ebb
