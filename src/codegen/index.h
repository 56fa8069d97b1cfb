// Where a thread of a generated kernel works: numbers split into coordinates, coordinates turned
// into addresses. Sizes and strides are kernel parameters, so that shapes share one kernel.
#pragma once

#include <span>
#include <vector>

#include "codegen/builder.h"

namespace ebb::codegen {

// n / d for n below 2^31, with the fields of FastDiv(d) as values.
U32 quotient(U32 n, U32 multiplier, U32 shift);
// The same for a d that the host knows; its fields become parameters.
U32 quotient(Builder& b, U32 n, int64_t d);

// A number below 2^31 as coordinates in dims of these sizes (outermost first).
class Coordinates {
 public:
  Coordinates(Builder& b, const std::vector<int64_t>& sizes);
  std::vector<U32> of(U32 number) const;

 private:
  struct Dim {
    U32 size, multiplier, shift;
  };
  std::vector<Dim> dims_;
};

// sum of coordinates x strides (u32 each) as u64; no value if all strides are 0.
class Strides {
 public:
  Strides(Builder& b, const std::vector<int64_t>& strides);
  U64 offset(const std::vector<U32>& coordinates) const;

 private:
  std::vector<U32> strides_;  // none: 0
};

// The segment of a segmented tensor that holds a thread's vector (`vector` consecutive elements of
// the last dim).
class SegmentChoice {
 public:
  // `column`: the thread's index along the last dim of all segments, in vectors. The vector width
  // divides all segment widths.
  SegmentChoice(Builder& b, std::span<const int64_t> widths, int vector, U32 column);
  // The index within segment k, in vectors; meaningless if the vector is in another segment.
  U32 column(size_t segment) const { return columns_[segment]; }
  // Selects the value of the thread's segment.
  U64 choose(std::span<const U64> by_segment) const;

 private:
  std::vector<U32> columns_;
  std::vector<Pred> inside_;  // in this segment or a later one
};

// base + offset elements
U64 address(U64 base, U64 offset, DType dtype);

// The thread's number in the launch.
U32 thread_number(Builder& b, int threads);

}  // namespace ebb::codegen
