// ListOf: a field of several small structs. As one text they are separated by commas; a struct
// brings `text_of(const T&)` and `parse_text(T&, text)`.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "base/text.h"

namespace ebb {

template <class T>
class ListOf final : public TextValue {
 public:
  ListOf() = default;
  ListOf(std::initializer_list<T> items) : items(items) {}

  std::vector<T> items;

  size_t size() const { return items.size(); }
  bool empty() const { return items.empty(); }
  const T& operator[](size_t i) const { return items[i]; }
  auto begin() const { return items.begin(); }
  auto end() const { return items.end(); }
  void push_back(T item) { items.push_back(std::move(item)); }

  std::string text() const override {
    return separated(items, ",", [](const T& item) { return text_of(item); });
  }
  // Throws Error, and leaves the items as they were.
  void parse(std::string_view text) override {
    std::vector<T> read;
    for (const std::string_view item : items_in(text, ",")) parse_text(read.emplace_back(), item);
    items = std::move(read);
  }
};

}  // namespace ebb
