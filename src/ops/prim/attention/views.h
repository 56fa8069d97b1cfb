// Where attention's operands and results with heads lie: views of their tensors, as attributes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/optional_text.h"
#include "ir/strided_view.h"

namespace ebb::ops {

// Views by the number of the operand or result, left out of texts where there are none. One is
// `0+64:2x77x8x64:118272x1536x64x1`: operand 0 has its first element at 64 of its input, the shape
// [2,77,8,64] and these strides. Of a result the shape is its tensor's, and none (`1+64::...`) says
// that it lies in the tensor of the result before.
class HeadViews final : public OptionalText {
 public:
  struct Item {
    size_t index = 0;
    StridedView view;
  };
  const StridedView* of(size_t index) const;  // null: the whole tensor, in order
  void set(size_t index, StridedView view);
  const std::vector<Item>& items() const { return items_; }

  bool empty() const override { return items_.empty(); }
  std::string text() const override;
  void parse(std::string_view text) override;  // throws Error

 private:
  std::vector<Item> items_;  // ascending
};

// A tensor [N,T,A,K] in another one, in elements: where it begins, and from image to image, token
// to token and head to head. Columns lie side by side.
struct HeadView {
  int64_t offset = 0, n = 0, t = 0, a = 0;
  bool operator==(const HeadView&) const = default;
};

}  // namespace ebb::ops
