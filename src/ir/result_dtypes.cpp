#include "ir/result_dtypes.h"

#include "base/error.h"
#include "base/list_of.h"
#include "base/text.h"

namespace ebb {

// What ListOf asks of its items.
static std::string_view text_of(DType t) { return name_of(t); }
static void parse_text(DType& t, std::string_view text) { t = parse_dtype(text); }

void ResultDType::parse(std::string_view text) {
  value_ = text.empty() ? std::nullopt : std::optional(parse_dtype(text));
}

std::vector<DType> ResultDTypes::expanded(size_t results, DType default_dtype) const {
  if (values_.size() == results) return values_;
  if (values_.size() > 1)
    fail("expression: dtypes (", text(), ") must be one, or one a result (", results, ")");
  return std::vector<DType>(results, values_.empty() ? default_dtype : values_[0]);
}

std::string ResultDTypes::text() const { return separated(values_, ",", text_of); }

void ResultDTypes::parse(std::string_view text) {
  ListOf<DType> read;
  read.parse(text);
  values_ = std::move(read.items);
}

}  // namespace ebb
