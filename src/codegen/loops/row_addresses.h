// Addresses of rows that are not one dense run: their elements change places, heads share them, or
// rows of one input are in several tensors.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "codegen/index.h"
#include "codegen/loops/row_kernel.h"

namespace ebb::codegen {

// Whether a thread's vectors of input i are one at all steps: heads share it, and the thread is at
// the same place of each.
bool repeats_each_step(const RowForm& form, const RowLayout& layout, size_t i);

class RowAddresses {
 public:
  RowAddresses(Builder& b, const RowForm& form, const RowLayout& layout)
      : b_(b), form_(form), layout_(layout) {}

  // Whether the vectors of input i lie elsewhere than one behind the other.
  bool moves(size_t i) const { return !is_flat(i) || form_.swaps.moves(i, layout_.vector); }
  // Where in a row of input i the thread's vectors lie, by step, in bytes.
  std::vector<U64> vectors(size_t i, U32 lane);
  // The row of input i, in its segment. `base`: of each; `at`: the row's coordinates.
  U64 in_segment(size_t i, std::span<const U64> base, std::vector<U32> at);

 private:
  bool is_flat(size_t i) const;

  Builder& b_;
  const RowForm& form_;
  const RowLayout& layout_;
  std::map<std::pair<int64_t, std::vector<int64_t>>, std::vector<U64>> known_;
  std::vector<SegmentChoice> choice_;  // none, or that of all inputs in segments
};

}  // namespace ebb::codegen
