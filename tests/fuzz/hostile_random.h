// Choices of a fuzzer, and changes of texts and of JSON that keep most of what was valid.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "fuzz/hostile_words.h"

namespace ebb::testing {

class HostileRandom {
 public:
  using Json = nlohmann::json;
  explicit HostileRandom(uint64_t seed) : random_(seed) {}

  size_t below(size_t n) { return random_() % n; }
  bool one_in(size_t n) { return below(n) == 0; }
  uint64_t number() { return random_(); }
  const std::string& one_of(const std::vector<std::string>& from) {
    return from[below(from.size())];
  }
  // A word of the tables, or one that the server has said: ids and names that it knows.
  const std::string& word() {
    return learnt_.empty() || one_in(2) ? one_of(hostile_words()) : one_of(learnt_);
  }
  const std::string& learnt_word() { return learnt_.empty() ? word() : one_of(learnt_); }
  void learn(std::string word) {
    constexpr size_t most = 64;
    if (learnt_.size() < most) return learnt_.push_back(std::move(word));
    learnt_[below(most)] = std::move(word);
  }

  // Some bytes are others, are gone, or are there twice.
  void change(std::string& text) {
    for (size_t i = 0; i <= below(4) && !text.empty(); ++i) {
      const size_t at = below(text.size()), size = std::min(1 + below(16), text.size() - at);
      switch (below(4)) {
        case 0: text[at] = static_cast<char>(below(256)); break;
        case 1: text.erase(at, size); break;
        case 2: text.insert(at, text.substr(at, size)); break;
        default: text.insert(at, one_of(hostile_words())); break;
      }
    }
  }

  // A value of any kind.
  Json value() {
    switch (below(14)) {
      case 0: return nullptr;
      case 1: return one_in(2);
      case 2: return Json::array({value(), 2, "x"});
      case 3: return {{"model", value()}, {word(), value()}};
      case 4: return one_in(2) ? 1e308 : -1e-320;
      case 5: return Json::array({word(), below(4)});  // as links of ComfyUI's graphs are
      case 6: return std::string(below(one_in(50) ? 70000 : 200), 'a');
      case 7: return static_cast<int64_t>(random_());
      case 8: return random_();
      case 9: return "64";
      case 10: return 0.5;
      case 11: return static_cast<int64_t>(below(20)) - 2;
      default: return word();
    }
  }

  // Changes the structure in some places: values of other kinds or of other places, keys and
  // elements that are gone, are there twice, or have another name.
  void change(Json& tree) {
    for (size_t i = 0; i <= below(3); ++i) change_at(*part_of(tree), tree);
  }

 private:
  // One of its parts, deep ones as likely as those above them; never null.
  Json* part_of(Json& tree) {
    Json* at = &tree;
    while (at->is_structured() && !at->empty() && !one_in(4)) {
      auto i = at->begin();
      std::advance(i, static_cast<std::ptrdiff_t>(below(at->size())));
      at = &*i;
    }
    return at;
  }
  void change_at(Json& part, Json& tree) {
    if (part.is_object() && !part.empty()) return change_object(part, tree);
    if (part.is_array() && !part.empty() && one_in(2)) {
      const auto at = part.begin() + static_cast<std::ptrdiff_t>(below(part.size()));
      if (one_in(3))
        part.erase(at);
      else if (one_in(2))
        part.push_back(Json(*at));
      else
        *at = value();
      return;
    }
    if (part.is_string() && one_in(2)) {
      std::string text = part;
      change(text);
      part = text;
    } else if (part.is_number() && one_in(2)) {
      part = std::vector<Json>{0, -1, 1, 1e308, 0.5, 4096, 1ULL << 63, -0.0}[below(8)];
    } else {
      part = one_in(3) ? Json(*part_of(tree)) : value();
    }
    if (part.dump(-1, ' ', false, Json::error_handler_t::replace).size() > largest) part = nullptr;
  }
  void change_object(Json& part, Json& tree) {
    auto at = part.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(below(part.size())));
    switch (below(5)) {
      case 0: part.erase(at); break;
      case 1: part[one_in(2) ? one_of(hostile_fields()) : word()] = Json(*at); break;
      case 2: part[one_of(hostile_fields())] = value(); break;
      case 3: {
        Json other = *part_of(tree);
        if (other.dump(-1, ' ', false, Json::error_handler_t::replace).size() < largest)
          *at = std::move(other);
        break;
      }
      default: *at = value(); break;
    }
  }

  static constexpr size_t largest = 1 << 17;  // of what is copied within a body
  std::mt19937_64 random_;
  std::vector<std::string> learnt_;
};

}  // namespace ebb::testing
