#include "base/error.h"

#include <array>
#include <charconv>
#include <sstream>
#include <utility>

namespace ebb {

namespace {

// As a std::ostream of the C locale writes them: real numbers with six digits.
template <class Number, class... Format>
void append(std::string& out, Number v, Format... format) {
  std::array<char, 32> digits;
  out.append(digits.data(),
             std::to_chars(digits.data(), digits.data() + digits.size(), v, format...).ptr);
}

}  // namespace

void MessagePart::write_text(std::string& out, const MessagePart& part) {
  out.append(static_cast<const char*>(part.text_), part.number_.natural);
}

void MessagePart::write_real(std::string& out, const MessagePart& part) {
  append(out, part.number_.real, std::chars_format::general, 6);
}

void MessagePart::write_signed(std::string& out, const MessagePart& part) {
  append(out, part.number_.whole);
}

void MessagePart::write_unsigned(std::string& out, const MessagePart& part) {
  append(out, part.number_.natural);
}

void MessagePart::write_streamed(std::string& out,
                                 void (*write)(std::ostream& stream, const void* v)) const {
  std::ostringstream written;
  write(written, text_);
  out += std::move(written).str();
}

std::string message(std::initializer_list<MessagePart> parts) {
  std::string out;
  for (const MessagePart& part : parts) part.append_to(out);
  return out;
}

void fail_with(std::initializer_list<MessagePart> parts) { throw Error(message(parts)); }

}  // namespace ebb
