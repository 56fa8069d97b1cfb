#include "ranks/agree.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/names.h"
#include "base/parse_json.h"

namespace ebb::ranks {
namespace {

using Json = nlohmann::ordered_json;

// By name, in the order of rank 0; a value of JSON as its text.
void add_facts(const std::string& name, const Json& value, std::vector<Fact>& out) {
  if (!value.is_object() || value.empty()) {
    out.push_back({name, value.dump(-1, ' ', false, Json::error_handler_t::replace)});
    return;
  }
  for (const auto& [field, inner] : value.items()) add_facts(str(name, ".", field), inner, out);
}

std::vector<Fact> flat(const std::vector<Fact>& facts) {
  std::vector<Fact> out;
  for (const Fact& f : facts) {
    const auto json = f.value.starts_with('{') ? parse_json<Json>(f.value) : Json();
    if (json.is_object())
      add_facts(f.name, json, out);
    else
      out.push_back(f);
  }
  return out;
}

std::string encoded(const std::vector<Fact>& facts) {
  Json out = Json::array();
  for (const Fact& f : facts) out.push_back({f.name, f.value});
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<Fact> decoded(const std::string& text, size_t rank) {
  const auto json = parse_json<Json>(text);
  require(json.is_array(), "ranks: rank ", rank, " sends no list of facts");
  std::vector<Fact> out;
  for (const Json& fact : json) {
    require(fact.is_array() && fact.size() == 2 && fact[0].is_string() && fact[1].is_string(),
            "ranks: rank ", rank, " sends a fact that is none");
    out.push_back({fact[0].get<std::string>(), fact[1].get<std::string>()});
  }
  return out;
}

std::string shown(const std::string& value) {
  constexpr size_t most = 80;
  const std::string text = printable(value);
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

// The names in the order of the first rank that has them.
std::vector<std::string> names_of(const std::vector<std::vector<Fact>>& all) {
  std::vector<std::string> out;
  for (const auto& facts : all)
    for (const Fact& f : facts)
      if (std::ranges::find(out, f.name) == out.end()) out.push_back(f.name);
  return out;
}

// The ranks that have each value, in the order of the ranks.
using ByValue = std::vector<std::pair<std::string, std::vector<int64_t>>>;

ByValue by_value(const std::vector<std::vector<Fact>>& all, const std::string& name) {
  ByValue out;
  for (size_t r = 0; r < all.size(); ++r) {
    const auto it = std::ranges::find(all[r], name, &Fact::name);
    const std::string value = it == all[r].end() ? "not there" : it->value;
    auto same = std::ranges::find(out, value, [](const auto& v) { return v.first; });
    if (same == out.end()) same = out.insert(out.end(), {value, {}});
    same->second.push_back(static_cast<int64_t>(r));
  }
  return out;
}

std::string difference(const ByValue& values) {
  std::string out;
  constexpr size_t most = 4;
  for (size_t i = 0; i < std::min(values.size(), most); ++i)
    out += str(i == 0 ? "" : "; ", shown(values[i].first), " on rank",
               values[i].second.size() > 1 ? "s " : " ", ranks_text(values[i].second));
  return values.size() > most ? out + "; ..." : out;
}

}  // namespace

std::string ranks_text(const std::vector<int64_t>& ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    out += str(out.empty() ? "" : ", ", ranks[i]);
    if (last > i) out += str(last > i + 1 ? "-" : ", ", ranks[last]);
    i = last + 1;
  }
  return out;
}

void check_equal(RankGroup& group, const std::vector<Fact>& facts) {
  std::vector<std::vector<Fact>> all;
  for (const std::string& text : group.gather(encoded(flat(facts))))
    all.push_back(decoded(text, all.size()));
  std::string first, others;  // that differ
  for (const std::string& name : names_of(all)) {
    const auto values = by_value(all, name);
    if (values.size() == 1) continue;
    if (first.empty())
      first = str("ranks: ", name, " must be the same on all (", difference(values));
    else
      others += str(others.empty() ? "; so must " : ", ", name);
  }
  require(first.empty(), first, others, ")");
}

}  // namespace ebb::ranks
