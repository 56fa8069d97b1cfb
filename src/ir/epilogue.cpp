#include "ir/epilogue.h"

#include "base/error.h"
#include "base/text.h"

namespace ebb {

std::string Epilogue::text() const {
  if (is_sum()) return "";
  std::string more;
  if (parts != 1) more = str("parts=", parts);
  if (!columns.empty()) {
    more += more.empty() ? "columns=" : ",columns=";
    for (size_t i = 0; i < columns.size(); ++i) more += str(i ? "," : "", columns[i]);
  }
  return more.empty() ? expr.text() : str(expr.text(), '[', more, ']');
}

void Epilogue::parse(std::string_view text) {
  *this = {};
  if (text.empty()) return;
  const size_t end = text.find('>');
  require(end != std::string_view::npos, "epilogue: must begin with an expression (got '", text,
          "')");
  expr.parse(text.substr(0, end + 1));
  std::string_view more = text.substr(end + 1);
  if (more.empty()) return;
  require(more.front() == '[' && more.back() == ']', "epilogue: expected [parts=...,columns=...]",
          " (got '", more, "')");
  more = more.substr(1, more.size() - 2);
  constexpr std::string_view in_parts = "parts=", from = "columns=";
  bool in_columns = false;
  for (std::string_view item : items_in(more, ",")) {
    if (!in_columns && item.starts_with(in_parts)) {
      parts = parse_integer(item.substr(in_parts.size()), "epilogue");
      continue;
    }
    if (!in_columns) {
      require(item.starts_with(from), "epilogue: expected parts or columns (got '", item, "')");
      item.remove_prefix(from.size());
      in_columns = true;
    }
    columns.push_back(parse_integer(item, "epilogue"));
  }
}

}  // namespace ebb
