// Passes over rows as generated kernels: reductions along the last dim, what is made of them and
// the rows, which are read once, and sums of that across rows. Prepared once and run many times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"
#include "codegen/loops/row_kernel.h"
#include "core/shape.h"
#include "ir/expr.h"

namespace ebb::cuda {

// `expr` takes the inputs, then the reductions; it gives the reductions' operands, then the
// outputs. A term may use the reductions before its own. Rows are the last `row_dims` dims R of
// `shape` [...,T,R...]; outputs have a value for each element, row, or partial
// [...,T/partial_rows,R...]. What changes along a row does so along its last dim. Sums are in f32
// and in a fixed order. An output may be the memory of an input of the same type.
struct RowUse {
  Expr expr;
  Shape shape;
  std::vector<Type> in;
  std::vector<bool> maximum;  // of the reductions: else sums
  std::vector<DType> out;
  std::vector<codegen::RowExtent> extents;
  int64_t row_dims = 1;
  int64_t partial_rows = 0;
  codegen::SlicesForm slices = {};  // of the inputs, which are the slices
  codegen::SwapsForm swaps = {};    // of the inputs
  codegen::RowSegments segments = {};
  std::vector<int64_t> same = {};  // by input, an earlier one that is the same tensor, or -1
  bool unaligned = false;          // see Signature::aligned
};

// One use, or several in one launch that do not depend on each other.
class RowPass {
 public:
  // Rows of 2 to 16384 elements; with partial column reductions to 8192.
  static bool supports(const Shape& shape, int64_t row_dims, bool partials);
  // Of several, each of which is supported: all have elements and one kernel.
  static bool share_a_launch(const std::vector<RowUse>& uses, const CudaDevice& device);
  RowPass(const std::vector<RowUse>& uses, CudaDevice& device);
  // The tensors of the first use, of the second, ...; all segments, in order; of slices, the whole
  // tensors.
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace ebb::cuda
