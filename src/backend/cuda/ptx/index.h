// Where a thread of a generated kernel works: numbers split into coordinates, coordinates turned
// into addresses. Sizes and strides are kernel parameters, so that shapes share one text.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/ptx/ptx.h"

namespace ebb::cuda {

// The text and the parameter struct of a kernel that is being written.
struct Draft {
  Ptx ptx;
  Parameters parameters;

  // A u32 field with this value, in a register.
  Reg number(int64_t value);
  // A pointer field, set at each launch; its offset is appended to `pointers`.
  Reg pointer(std::vector<int64_t>& pointers);
};

// A number below 2^31 as coordinates in dims of these sizes (outermost first).
class Coordinates {
 public:
  Coordinates(Draft& d, const std::vector<int64_t>& sizes);
  std::vector<Reg> of(Draft& d, Reg number) const;

 private:
  struct Dim {
    Reg size, multiplier, shift;
  };
  std::vector<Dim> dims_;
};

// sum of coordinates x strides (u32 each) as a b64 register; no register if all strides are 0.
class Strides {
 public:
  Strides(Draft& d, const std::vector<int64_t>& strides);
  Reg offset(Draft& d, const std::vector<Reg>& coordinates) const;

 private:
  std::vector<Reg> strides_;  // none: 0
};

// The segment of a segmented tensor that holds a thread's vector (`vector` consecutive elements of
// the last dim).
class SegmentChoice {
 public:
  // `column`: the thread's index along the last dim of all segments, in vectors. The vector width
  // divides all segment widths.
  SegmentChoice(Draft& d, std::span<const int64_t> widths, int vector, Reg column);
  // The index within segment k, in vectors; meaningless if the vector is in another segment.
  Reg column(size_t segment) const { return columns_[segment]; }
  // Selects the value (b64) of the thread's segment.
  Reg choose(Draft& d, std::span<const Reg> by_segment) const;

 private:
  std::vector<Reg> columns_, inside_;  // inside: in this segment or a later one
};

// base + offset elements
Reg address(Ptx& p, Reg base, Reg offset, DType dtype);

// blockIdx.x * threads + threadIdx.x
Reg thread_number(Ptx& p, int threads);

}  // namespace ebb::cuda
