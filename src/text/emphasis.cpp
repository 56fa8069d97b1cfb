#include "text/emphasis.h"

#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "text/python_text.h"
#include "text/unicode.h"

namespace ebb::text {
namespace {

constexpr int64_t product_limit = 50'000'000;
constexpr size_t depth_limit = 200;
constexpr std::u32string_view break_word = U"BREAK";

double finite(double weight, std::u32string_view where) {
  require(std::isfinite(weight), "prompt: a weight must be finite (", weight, ")  ", shown(where));
  return weight;
}

// A weight at the end of a bracket, ":1.3)".
struct Closing {
  std::u32string_view number;
  size_t end;  // behind the bracket
};

struct Piece {
  std::u32string text;
  double weight = 1;
};

// Collects pieces and multiplies their weights when a bracket closes.
class A1111Emphasis {
 public:
  explicit A1111Emphasis(std::u32string_view text) : text_(text) {
    for (size_t at = 0; at < text.size();) at = read(at);
    for (const size_t from : round_) multiply(from, up);
    for (const size_t from : square_) multiply(from, down);
  }

  std::vector<WeightedText> pieces(std::vector<std::string>& warnings) const {
    std::vector<Piece> merged;
    for (const Piece& p : pieces_) {
      if (!merged.empty() && merged.back().weight == p.weight) {
        merged.back().text += p.text;
      } else {
        merged.push_back(p);
      }
    }
    std::vector<WeightedText> out;
    size_t breaks = 0;
    for (const Piece& p : merged) {
      const bool is_break = p.text == break_word && p.weight == -1;
      breaks += is_break;
      out.push_back(
          {is_break ? "" : to_utf8(p.text), is_break ? 1 : finite(p.weight, p.text), is_break});
    }
    if (breaks < breaks_)
      warnings.push_back(str("prompt: BREAK inside of brackets is a word, as in A1111 (",
                             breaks_ - breaks, " times)"));
    if (out.empty()) out.emplace_back();
    return out;
  }

 private:
  static constexpr double up = 1.1, down = 1 / 1.1;

  // Reads what stands at `at`; returns where the next starts.
  size_t read(size_t at) {
    const char32_t c = text_[at];
    if (c == '\\') return read_escape(at);
    if (c == ':') return read_colon(at);
    if (c == '(' || c == '[') {
      (c == '(' ? round_ : square_).push_back(pieces_.size());
      return at + 1;
    }
    if (c == ')' || c == ']') {
      std::vector<size_t>& open = c == ')' ? round_ : square_;
      if (open.empty()) {
        add_text(text_.substr(at, 1));
      } else {
        close(open, c == ')' ? up : down);
      }
      return at + 1;
    }
    const size_t end = std::min(text_.find_first_of(U"\\()[]:", at), text_.size());
    add_text(text_.substr(at, end - at));
    return end;
  }

  // A \ before anything else is nothing.
  size_t read_escape(size_t at) {
    const bool escape = at + 1 < text_.size() && std::u32string_view(U"()[]\\").find(
                                                     text_[at + 1]) != std::u32string_view::npos;
    pieces_.push_back({std::u32string(text_.substr(at + 1, escape ? 1 : 0))});
    return at + 1 + escape;
  }

  size_t read_colon(size_t at) {
    const std::optional<Closing> closing = closing_weight(at);
    const size_t end = closing ? closing->end : at + 1;
    if (closing && !round_.empty()) {
      const auto weight = python_float(closing->number);
      require(weight.has_value(), "prompt: a weight must be a number, found ",
              shown(closing->number), " (character ", at + 2, ")");
      close(round_, *weight);
    } else {
      add_text(text_.substr(at, end - at));
    }
    return end;
  }

  // ":", a number and ")" with white space between them.
  std::optional<Closing> closing_weight(size_t colon) const {
    size_t at = colon + 1;
    const auto skip_space = [&] {
      while (at < text_.size() && python_space(text_[at])) ++at;
    };
    skip_space();
    const size_t begin = at;
    if (at < text_.size() && (text_[at] == '+' || text_[at] == '-')) ++at;
    const size_t digits = at;
    while (at < text_.size() && (text_[at] == '.' || decimal_digit(text_[at]) >= 0)) ++at;
    if (at == digits) return std::nullopt;
    const size_t end = at;
    skip_space();
    if (at == text_.size() || text_[at] != ')') return std::nullopt;
    return Closing{text_.substr(begin, end - begin), at + 1};
  }

  // The text, cut at every BREAK, which takes the white space around it.
  void add_text(std::u32string_view text) {
    size_t begin = 0;
    for (size_t at = text.find(break_word); at != std::u32string_view::npos;
         at = text.find(break_word, at)) {
      const size_t after = at + break_word.size();
      if (whole_word_at(text, at, break_word)) {
        size_t end = at;
        while (end > begin && python_space(text[end - 1])) --end;
        pieces_.push_back({std::u32string(text.substr(begin, end - begin))});
        pieces_.push_back({std::u32string(break_word), -1});
        ++breaks_;
        begin = after;
        while (begin < text.size() && python_space(text[begin])) ++begin;
      }
      at = after;
    }
    pieces_.push_back({std::u32string(text.substr(std::min(begin, text.size())))});
  }

  void close(std::vector<size_t>& open, double factor) {
    multiply(open.back(), factor);
    open.pop_back();
  }

  // Multiplies one after the other, innermost first: the rounding decides which are equal.
  void multiply(size_t from, double factor) {
    products_ += static_cast<int64_t>(pieces_.size() - from);
    require(products_ <= product_limit, "prompt: brackets must not be nested this deeply (",
            round_.size(), " round and ", square_.size(), " square ones are open around ",
            pieces_.size(), " pieces)");
    for (size_t i = from; i < pieces_.size(); ++i) pieces_[i].weight *= factor;
  }

  std::u32string_view text_;
  std::vector<Piece> pieces_;
  std::vector<size_t> round_, square_;  // where brackets that are open begin, in pieces
  int64_t products_ = 0;
  size_t breaks_ = 0;
};

// Stand for \( and \) while brackets are counted; no text has them.
constexpr char32_t escaped_open = 0x110000, escaped_close = 0x110001;

std::u32string escaped(std::u32string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size(); ++at) {
    const char32_t next = at + 1 < text.size() ? text[at + 1] : 0;
    if (text[at] == '\\' && (next == '(' || next == ')')) {
      out += next == '(' ? escaped_open : escaped_close;
      ++at;
    } else {
      out += text[at];
    }
  }
  return out;
}

std::string unescaped(std::u32string_view text) {
  std::u32string out(text);
  for (char32_t& c : out) c = c == escaped_open ? U'(' : c == escaped_close ? U')' : c;
  return to_utf8(out);
}

// The text cut into outermost brackets and what is between them. A bracket closed too often hides
// the next one, as there; one never closed goes on to the end.
std::vector<std::u32string_view> outermost(std::u32string_view text) {
  std::vector<std::u32string_view> out;
  size_t begin = 0;
  const auto cut = [&](size_t end) {
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end;
  };
  int64_t level = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '(' && level++ == 0) cut(at);
    if (text[at] == ')' && --level == 0) cut(at + 1);
  }
  cut(text.size());
  return out;
}

}  // namespace

std::vector<WeightedText> a1111_emphasis(std::string_view text,
                                         std::vector<std::string>& warnings) {
  return A1111Emphasis(decode_utf8(text)).pieces(warnings);
}

std::vector<WeightedText> comfyui_emphasis(std::string_view text) {
  struct Part {
    std::u32string_view text;
    double weight;
    size_t depth;
    bool whole;  // not yet cut into brackets
  };
  const std::u32string all = escaped(decode_utf8(text));
  std::vector<WeightedText> out;
  std::vector<Part> rest = {{all, 1.0, 0, true}};
  while (!rest.empty()) {
    Part part = rest.back();
    rest.pop_back();
    if (part.whole) {
      require(part.depth <= depth_limit, "prompt: parentheses must not be nested deeper than ",
              depth_limit, "  ", unescaped(part.text.substr(0, 40)));
      const auto pieces = outermost(part.text);
      for (size_t i = pieces.size(); i > 0; --i)
        rest.push_back({pieces[i - 1], part.weight, part.depth, false});
      continue;
    }
    if (part.text.size() < 2 || part.text.front() != '(' || part.text.back() != ')') {
      out.push_back({unescaped(part.text), finite(part.weight, part.text)});
      continue;
    }
    std::u32string_view inner = part.text.substr(1, part.text.size() - 2);
    double weight = part.weight * 1.1;
    const size_t colon = inner.rfind(':');
    if (colon != std::u32string_view::npos && colon > 0) {
      if (const auto number = python_float(inner.substr(colon + 1))) {
        weight = *number;
        inner = inner.substr(0, colon);
      }
    }
    rest.push_back({inner, weight, part.depth + 1, true});
  }
  return out;
}

}  // namespace ebb::text
