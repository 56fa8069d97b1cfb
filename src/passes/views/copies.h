// copies: values that hold elements of other values and nothing else, by what their ops say of
// themselves: OpDef::renames and OpDef::copy.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/op.h"

namespace ebb {

// The node that gives a value; null for a source.
const Node* producer(const Graph& g, int32_t v);

// Whether a node gives its operand another shape of the same last dim.
bool keeps_rows(const Graph& g, const Node& n);
// The value whose memory `v` is, looking through ops that rename, or keep rows.
int32_t root_of(const Graph& g, int32_t v);
int32_t row_root_of(const Graph& g, int32_t v);

// A value that is the range [begin, end) of `dim` of `base`.
struct SliceView {
  size_t node = 0;  // the slice or split
  int32_t value = -1, base = -1;
  int64_t dim = 0, begin = 0, end = 0;
};
// Whether a slice is one range of its base's memory, and no columns: the memory plan has those in
// place.
bool is_range(const Graph& g, const SliceView& view);
// None if `v` is no such slice.
std::optional<SliceView> slice_of(const Graph& g, int32_t v);
// Slices of the last dim alone.
std::optional<SliceView> columns_of(const Graph& g, int32_t v);
// By result of a node; none unless all are such.
std::vector<SliceView> columns_of_results(const Graph& g, size_t node);

// The values that a node concatenates along `dim` (-1: the last), two and more; else none.
std::vector<int32_t> concatenated(const Graph& g, const Node& n, int64_t dim);

}  // namespace ebb
