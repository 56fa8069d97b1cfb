#include "base/names.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace ebb {
namespace {

// Letters changed, added, left out or swapped with their neighbour.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({replace, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string small_letters(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string printable(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    // U+0080 to U+009f, two bytes in UTF-8, are control characters too.
    const bool wide = c == 0xc2 && next >= 0x80 && next < 0xa0;
    const unsigned char shown = wide ? next : c;
    if (wide) ++i;
    if (wide || (c < 0x20 && c != '\n') || c == 0x7f)
      out += {'\\', 'x', digits[shown / 16], digits[shown % 16]};
    else
      out += text[i];
  }
  return out;
}

size_t find_name(std::string_view name, std::span<const std::string> known) {
  const auto exact = std::find(known.begin(), known.end(), name);
  if (exact != known.end()) return static_cast<size_t>(exact - known.begin());
  const auto same = [wanted = small_letters(name)](const std::string& k) {
    return small_letters(k) == wanted;
  };
  const auto found = std::find_if(known.begin(), known.end(), same);
  const bool only = std::none_of(known.begin(), known.end(),
                                 [&](const std::string& k) { return same(k) && k != *found; });
  return only ? static_cast<size_t>(found - known.begin()) : known.size();
}

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& k : known) {
    const size_t d = edit_distance(small_letters(name), small_letters(k));
    // Of short names most must be left; one change leaves enough of two letters.
    const size_t longest = std::max(name.size(), k.size()) + (d == 1 ? 1 : 0);
    if (d < best_distance && 2 * d < longest) {
      best = k;
      best_distance = d;
    }
  }
  return best;
}

std::string suggestion(std::string_view name, std::span<const std::string> known) {
  const std::string near = nearest_name(name, known);
  if (!near.empty()) return " (did you mean '" + near + "'?)";
  std::vector<std::string> each;
  for (const std::string& k : known)
    if (std::ranges::find(each, k) == each.end()) each.push_back(k);
  constexpr size_t all = 6, nearest = 5;
  if (each.size() <= all) return " (known: " + listed(each) + ")";
  const std::string wanted = small_letters(name);
  std::ranges::stable_sort(
      each, {}, [&](const std::string& k) { return edit_distance(wanted, small_letters(k)); });
  const std::string count = std::to_string(each.size());
  each.resize(nearest);
  return " (nearest of " + count + ": " + listed(each) + ")";
}

void check_known(std::string_view what, std::string_view name, std::span<const std::string> known) {
  if (std::find(known.begin(), known.end(), name) == known.end()) fail_unknown(what, name, known);
}

void fail_unknown(std::string_view what, std::string_view name,
                  std::span<const std::string> known) {
  fail(what, " '", name, "'", suggestion(name, known));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

std::string letters_and_digits(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) ||
        std::string_view(",;:=").find(c) != name.npos)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool same_name(std::string_view a, std::string_view b) {
  return letters_and_digits(a) == letters_and_digits(b);
}

}  // namespace ebb
