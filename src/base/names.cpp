#include "base/names.h"

#include <algorithm>
#include <cctype>
#include <numeric>

#include "base/error.h"

namespace ebb {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(std::string_view name, std::span<const std::string> known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& k : known) {
    const size_t d = edit_distance(name, k);
    if (d < best_distance) {
      best = k;
      best_distance = d;
    }
  }
  return best;
}

std::string suggestion(std::string_view name, std::span<const std::string> known) {
  const std::string near = nearest_name(name, known);
  if (!near.empty()) return " (did you mean '" + near + "'?)";
  std::string all;
  for (const std::string& k : known) all += (all.empty() ? "" : ", ") + k;
  return " (known: " + all + ")";
}

void check_known(std::string_view what, std::string_view name, std::span<const std::string> known) {
  if (std::find(known.begin(), known.end(), name) == known.end())
    fail(what, " '", name, "'", suggestion(name, known));
}

std::string letters_and_digits(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace ebb
