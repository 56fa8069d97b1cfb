#include "apps/server/styles.h"

#include <algorithm>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "io/file.h"

namespace ebb::server {
namespace {

constexpr int64_t largest_file = int64_t{16} << 20;

struct Row {
  size_t line = 1;  // that it begins in
  std::vector<std::string> cells;
};

// Cells in quotes may hold commas, ends of lines, and quotes, which are written twice.
class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}
  bool has_more() const { return at_ < text_.size(); }
  Row row() {
    Row out{.line = line_, .cells = {}};
    do {
      out.cells.push_back(peek() == '"' ? quoted() : plain());
    } while (took(','));
    took('\r');
    require(!has_more() || took('\n'), "serve: --styles: line ", line_,
            " goes on behind a text in quotes  ", file_);
    return out;
  }

 private:
  char peek() const { return has_more() ? text_[at_] : '\0'; }
  bool took(char c) {
    if (!has_more() || text_[at_] != c) return false;
    line_ += c == '\n', ++at_;
    return true;
  }
  std::string plain() {
    const size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    const std::string_view out = text_.substr(at_, end - at_);
    at_ = end;
    return std::string(out);
  }
  std::string quoted() {
    const size_t begun = line_;
    std::string out;
    for (took('"'); has_more();) {
      const char c = peek();
      took(c);
      if (c == '"' && !took('"')) return out;
      out += c;
    }
    fail("serve: --styles: the quote that begins in line ", begun, " has no end  ", file_);
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0, line_ = 1;
};

// Which cell of a row is what; none has the number of all.
struct Columns {
  size_t name, prompt, negative, all;
};

Columns columns_of(const Row& head, const std::string& file) {
  const auto at = [&](std::string_view word) {
    return static_cast<size_t>(std::ranges::find(head.cells, word) - head.cells.begin());
  };
  const size_t all = head.cells.size(), prompt = at("prompt");
  // older files call the prompt `text`
  const Columns out{at("name"), prompt == all ? at("text") : prompt, at("negative_prompt"), all};
  require(out.name < all && out.prompt < all,
          "serve: --styles: the first line must name the columns: name,prompt,negative_prompt  ",
          file);
  return out;
}

Style style_of(Row row, const Columns& columns, const std::string& file) {
  require(row.cells.size() <= columns.all, "serve: --styles: line ", row.line, " has ",
          row.cells.size(), " columns, the first one has ", columns.all, "  ", file);
  row.cells.resize(columns.all + 1);
  Style out{row.cells[columns.name], row.cells[columns.prompt], row.cells[columns.negative]};
  require(!out.name.empty(), "serve: --styles: the style of line ", row.line, " has no name  ",
          file);
  return out;
}

}  // namespace

std::vector<Style> read_styles(const std::string& file) {
  const std::string bytes = io::read_whole_file(file, "serve: --styles", largest_file);
  std::string_view text = bytes;
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  CsvReader csv(text, file);
  const Columns columns = columns_of(csv.row(), file);
  std::vector<Style> out;
  while (csv.has_more()) {
    Row row = csv.row();
    const size_t line = row.line;
    if (std::ranges::all_of(row.cells, &std::string::empty)) continue;
    Style style = style_of(std::move(row), columns, file);
    require(!find_style(out, style.name), "serve: --styles: line ", line, " has the name '",
            printable(style.name), "' again  ", file);
    out.push_back(std::move(style));
  }
  return out;
}

const Style* find_style(std::span<const Style> all, std::string_view name) {
  const auto at = std::ranges::find(all, name, &Style::name);
  return at == all.end() ? nullptr : &*at;
}

std::string with_style(const std::string& text, const std::string& style, size_t most) {
  constexpr std::string_view place = "{prompt}";
  const auto check = [&](size_t bytes) {
    require(bytes <= most, "with it the text would have ", bytes, " bytes, more than ", most);
  };
  size_t places = 0;
  for (size_t at = 0; (at = style.find(place, at)) != style.npos; at += place.size()) ++places;
  if (places == 0) {
    const std::string_view a = trimmed(text), b = trimmed(style),
                           between = a.empty() || b.empty() ? "" : ", ";
    check(a.size() + between.size() + b.size());
    return str(a, between, b);
  }
  check(style.size() - places * place.size() + places * text.size());
  std::string out;
  size_t from = 0;
  for (size_t at = 0; (at = style.find(place, from)) != style.npos; from = at + place.size())
    out += style.substr(from, at - from) + text;
  return out + style.substr(from);
}

}  // namespace ebb::server
