#include "ir/result_dtypes.h"

#include "base/error.h"
#include "base/text.h"

namespace ebb {

void ResultDType::parse(std::string_view text) {
  value_ = text.empty() ? std::nullopt : std::optional(parse_dtype(text));
}

std::vector<DType> ResultDTypes::expanded(size_t results, DType default_dtype) const {
  if (values_.size() == results) return values_;
  if (values_.size() > 1)
    fail("expression: dtypes (", text(), ") must be one, or one a result (", results, ")");
  return std::vector<DType>(results, values_.empty() ? default_dtype : values_[0]);
}

std::string ResultDTypes::text() const {
  return separated(values_, ",", [](DType t) { return name_of(t); });
}

void ResultDTypes::parse(std::string_view text) {
  std::vector<DType> read;
  for (const std::string_view one : items_in(text, ",")) read.push_back(parse_dtype(one));
  values_ = std::move(read);
}

}  // namespace ebb
