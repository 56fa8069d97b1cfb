#include "base/error.h"

#include <sstream>

namespace ebb {

void MessagePart::write_text(std::ostream& out, const MessagePart& part) {
  out << std::string_view(static_cast<const char*>(part.text_), part.number_.natural);
}

void MessagePart::write_real(std::ostream& out, const MessagePart& part) {
  out << part.number_.real;
}

void MessagePart::write_signed(std::ostream& out, const MessagePart& part) {
  out << part.number_.whole;
}

void MessagePart::write_unsigned(std::ostream& out, const MessagePart& part) {
  out << part.number_.natural;
}

std::string message(std::initializer_list<MessagePart> parts) {
  std::ostringstream out;
  for (const MessagePart& part : parts) part.write(out);
  return out.str();
}

void fail_with(std::initializer_list<MessagePart> parts) { throw Error(message(parts)); }

}  // namespace ebb
