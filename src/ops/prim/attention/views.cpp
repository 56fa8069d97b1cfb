#include "ops/prim/attention/views.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace ebb::ops {
namespace {

std::vector<int64_t> numbers(std::string_view text, std::string_view of) {
  std::vector<int64_t> all;
  for (const std::string_view one : items_in(text, "x")) all.push_back(parse_integer(one, of));
  return all;
}

HeadViews::Item item_of(std::string_view text) {
  const size_t plus = text.find('+'), shape = text.find(':'), strides = text.rfind(':');
  require(plus < shape && shape < strides && strides != std::string_view::npos,
          "views: expected index+offset:shape:strides (got '", text, "')");
  HeadViews::Item item;
  item.index = static_cast<size_t>(parse_integer(text.substr(0, plus), "views"));
  item.view.offset = parse_integer(text.substr(plus + 1, shape - plus - 1), "views");
  item.view.shape = Shape(numbers(text.substr(shape + 1, strides - shape - 1), "views"));
  item.view.strides = numbers(text.substr(strides + 1), "views");
  return item;
}

}  // namespace

const StridedView* HeadViews::of(size_t index) const {
  const auto at = std::ranges::find(items_, index, &Item::index);
  return at == items_.end() ? nullptr : &at->view;
}

void HeadViews::set(size_t index, StridedView view) {
  const auto at = std::ranges::lower_bound(items_, index, {}, &Item::index);
  if (at != items_.end() && at->index == index)
    at->view = std::move(view);
  else
    items_.insert(at, {index, std::move(view)});
}

std::string HeadViews::text() const {
  return separated(items_, ",", [](const Item& i) {
    return str(i.index, "+", i.view.offset, ":", separated(i.view.shape.sizes(), "x"), ":",
               separated(i.view.strides, "x"));
  });
}

void HeadViews::parse(std::string_view text) {
  HeadViews read;
  for (const std::string_view one : items_in(text, ",")) {
    Item item = item_of(one);
    read.set(item.index, std::move(item.view));
  }
  items_ = std::move(read.items_);
}

}  // namespace ebb::ops
