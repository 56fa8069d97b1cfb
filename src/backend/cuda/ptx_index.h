// Where a thread of a generated kernel works: numbers split into coordinates, coordinates turned
// into addresses. Sizes and strides are kernel parameters, so that shapes share one text.
#pragma once

#include <vector>

#include "backend/cuda/ptx.h"

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

// base + offset elements
Reg address(Ptx& p, Reg base, Reg offset, DType dtype);

// blockIdx.x * threads + threadIdx.x
Reg thread_number(Ptx& p, int threads);

}  // namespace ebb::cuda
