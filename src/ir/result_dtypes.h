// ResultDType, ResultDTypes: attributes for the dtypes of an op's results. Unspecified, they are
// those that the op gives them.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fields.h"
#include "core/dtype.h"

namespace ebb {

// "bf16", or "" if unspecified.
class ResultDType final : public TextValue {
 public:
  ResultDType() = default;
  ResultDType(DType t) : value_(t) {}
  // Unspecified where `t` is what the op gives by itself.
  static ResultDType where_other(DType by_itself, DType t) {
    return t == by_itself ? ResultDType() : t;
  }
  DType value_or(DType other) const { return value_.value_or(other); }
  const std::optional<DType>& value() const { return value_; }
  std::string text() const override { return value_ ? std::string(name_of(*value_)) : ""; }
  void parse(std::string_view text) override;  // throws Error

 private:
  std::optional<DType> value_;
};

// "f32,bf16" of two results, "f32" of all, or "" if unspecified.
class ResultDTypes final : public TextValue {
 public:
  ResultDTypes() = default;
  ResultDTypes(DType of_all) : values_{of_all} {}
  ResultDTypes(const ResultDType& of_all) {
    if (of_all.value()) values_.push_back(*of_all.value());
  }
  ResultDTypes(std::initializer_list<DType> values) : values_(values) {}
  ResultDTypes(std::vector<DType> values) : values_(std::move(values)) {}
  bool empty() const { return values_.empty(); }
  // One for each of so many results. Throws Error for a list of another length.
  std::vector<DType> expanded(size_t results, DType default_dtype) const;
  std::string text() const override;
  void parse(std::string_view text) override;  // throws Error

 private:
  std::vector<DType> values_;
};

}  // namespace ebb
