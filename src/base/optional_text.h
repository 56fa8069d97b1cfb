// OptionalText: a field that fields_text leaves out while it is empty. Attributes that an op got
// later keep the texts of its earlier uses so, which are keys of recorded measurements.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "base/text.h"

namespace ebb {

class OptionalText : public TextValue {
 public:
  virtual bool empty() const = 0;
};

// A whole number that texts leave out while it is `usual`.
template <int64_t usual>
class OptionalNumber final : public OptionalText {
 public:
  OptionalNumber() = default;
  OptionalNumber(int64_t v) : value_(v) {}
  int64_t value() const { return value_; }
  operator int64_t() const { return value_; }
  bool empty() const override { return value_ == usual; }
  std::string text() const override { return std::to_string(value_); }
  void parse(std::string_view text) override { value_ = parse_integer(text, "number"); }

 private:
  int64_t value_ = usual;
};

// A text value with empty(), omitted from texts while it is empty.
template <class Value>
class OptionalValue final : public OptionalText {
 public:
  OptionalValue() = default;
  OptionalValue(Value v) : value_(std::move(v)) {}
  template <std::convertible_to<Value> From>
  OptionalValue(const From& v) : value_(v) {}
  const Value* operator->() const { return &value_; }

  bool empty() const override { return value_.empty(); }
  std::string text() const override { return value_.text(); }
  void parse(std::string_view text) override { value_.parse(text); }

 private:
  Value value_;
};

// A list of whole numbers that texts leave out while it is empty.
class OptionalNumbers final : public OptionalText {
 public:
  OptionalNumbers() = default;
  OptionalNumbers(std::vector<int64_t> v) : values(std::move(v)) {}

  std::vector<int64_t> values;

  bool empty() const override { return values.empty(); }
  std::string text() const override { return separated(values, ","); }
  void parse(std::string_view text) override {
    std::vector<int64_t> read;
    for (const std::string_view one : items_in(text, ","))
      read.push_back(parse_integer(one, "numbers"));
    values = std::move(read);
  }
};

}  // namespace ebb
