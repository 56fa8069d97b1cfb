#include "ir/formula.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "ir/activations.h"

namespace ebb {
namespace {

constexpr size_t longest = 4096;  // characters; bounds the depth of the expression as well
constexpr double infinity = std::numeric_limits<double>::infinity();

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The op of a function's name; input and constant are none.
std::optional<ScalarOpInfo> function_of(std::string_view name) {
  if (name == "where") return info_of(ScalarOp::select);
  for (int i = 0; i <= static_cast<int>(ScalarOp::select); ++i) {
    const ScalarOpInfo& info = info_of(static_cast<ScalarOp>(i));
    if (info.arguments > 0 && info.name == name) return info;
  }
  return {};
}

// 1 for numbers, 0 for NaN.
Scalar is_number(const Scalar& x) { return max(less(x, infinity), less(-infinity, x)); }
Scalar less_or_equal(const Scalar& a, const Scalar& b) {
  return (1.0 - less(b, a)) * is_number(a) * is_number(b);
}

class Parser {
 public:
  Parser(std::string_view text, std::span<const std::string> names) : text_(text), names_(names) {}

  std::vector<Scalar> formulas() {
    std::vector<Scalar> out = {comparison()};
    while (takes(",")) out.push_back(comparison());
    if (at_ < text_.size()) fails(str("unexpected '", text_[at_], "'"));
    return out;
  }

 private:
  [[noreturn]] void fails_at(size_t at, std::string_view what) const {
    fail("formula: column ", at + 1, ": ", what, "  ", text_);
  }
  [[noreturn]] void fails(std::string_view what) const { fails_at(at_, what); }
  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool takes(std::string_view token) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    skip_spaces();
    return true;
  }
  void wants(std::string_view token) {
    if (!takes(token)) fails(str("expected '", token, "'"));
  }

  Scalar comparison() {
    const Scalar a = sum();
    // the longer ones first
    if (takes("<=")) return less_or_equal(a, sum());
    if (takes(">=")) return less_or_equal(sum(), a);
    if (takes("==")) return equal(a, sum());
    if (takes("!=")) return 1.0 - equal(a, sum());
    if (takes("<")) return less(a, sum());
    if (takes(">")) return less(sum(), a);
    return a;
  }
  static Scalar equal(const Scalar& a, const Scalar& b) {
    return less_or_equal(a, b) * (1.0 - less(a, b));
  }

  Scalar sum() {
    Scalar a = product();
    for (;;) {
      if (takes("+"))
        a = a + product();
      else if (takes("-"))
        a = a - product();
      else
        return a;
    }
  }

  Scalar product() {
    Scalar a = signed_power();
    for (;;) {
      if (takes("*"))
        a = a * signed_power();
      else if (takes("/"))
        a = a / signed_power();
      else
        return a;
    }
  }

  // -x ** 2 is -(x ** 2), and 2 ** -x is 2 ** (-x).
  Scalar signed_power() {
    if (takes("-")) return -signed_power();
    if (takes("+")) return signed_power();
    const Scalar base = atom();
    return takes("**") ? pow(base, signed_power()) : base;
  }

  Scalar atom() {
    skip_spaces();
    if (at_ == text_.size()) fails("the formula ends too early");
    if (takes("(")) {
      const Scalar inside = comparison();
      wants(")");
      return inside;
    }
    const char c = text_[at_];
    if (is_digit(c) || c == '.') return number();
    if (!is_letter(c)) fails(str("unexpected '", c, "'"));
    return name();
  }

  Scalar number() {
    double v = 0;
    const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
    const auto [last, error] = std::from_chars(begin, end, v);
    if (error != std::errc()) fails("no number that a double holds");
    at_ += static_cast<size_t>(last - begin);
    return v;
  }

  Scalar name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (takes("(")) return function(word, begin);
    const auto input = std::ranges::find(names_, word);
    if (input == names_.end()) unknown("name", word, begin, {names_.begin(), names_.end()});
    return Scalar::input(input - names_.begin());
  }

  Scalar function(std::string_view word, size_t begin) {
    std::vector<Scalar> x;
    do x.push_back(comparison());
    while (takes(","));
    wants(")");
    const std::optional<ScalarOpInfo> f = function_of(word);
    const auto a = std::ranges::find(activations(), word, &Activation::name);
    if (!f && a != activations().end()) {
      if (x.size() != 1) fails_at(begin, str(word, " takes 1 (got ", x.size(), ")"));
      return a->of(x[0]);
    }
    if (!f) unknown("function", word, begin, functions());
    const bool folds = f->op == ScalarOp::min || f->op == ScalarOp::max;
    const auto given = static_cast<int>(x.size());
    if (folds ? given < 2 : given != f->arguments)
      fails_at(begin,
               str(word, " takes ", f->arguments, folds ? " and more" : "", " (got ", given, ")"));
    if (f->arguments == 1) return Scalar::make(f->op, x[0]);
    if (f->arguments == 3) return Scalar::make(f->op, x[0], x[1], x[2]);
    Scalar out = Scalar::make(f->op, x[0], x[1]);
    for (size_t i = 2; i < x.size(); ++i) out = Scalar::make(f->op, out, x[i]);
    return out;
  }

  static std::vector<std::string> functions() {
    std::vector<std::string> out = {"where"};
    for (int i = 0; i <= static_cast<int>(ScalarOp::select); ++i) {
      const ScalarOpInfo& info = info_of(static_cast<ScalarOp>(i));
      if (info.arguments > 0) out.emplace_back(info.name);
    }
    for (const Activation& a : activations()) out.push_back(a.name);
    return out;
  }

  [[noreturn]] static void unknown(std::string_view kind, std::string_view word, size_t begin,
                                   const std::vector<std::string>& known) {
    fail_unknown(str("formula: column ", begin + 1, ": unknown ", kind), word, known);
  }

  std::string_view text_;
  std::span<const std::string> names_;
  size_t at_ = 0;
};

}  // namespace

Expr parse_formula(std::string_view text, std::span<const std::string> names) {
  require(text.size() <= longest, "formula: at most ", longest, " characters (got ", text.size(),
          ")");
  const std::vector<Scalar> results = Parser(text, names).formulas();
  return Expr(static_cast<int64_t>(names.size()), results);
}

}  // namespace ebb
