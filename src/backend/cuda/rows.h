// Passes over rows as generated kernels: totals along the last dim and what is made of them and the
// rows, which are read once. Prepared once and run many times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device.h"
#include "core/shape.h"
#include "ir/expr.h"

namespace ebb::cuda {

// `expr` takes the inputs, then the totals; it gives the totals' terms, then the outputs. A term
// may use the totals before its own. Outputs that are not wide have one value a row [...,1]. Sums
// are in f32 and in a fixed order. An output may be the memory of an input of the same type.
class RowsPass {
 public:
  struct Options {
    std::vector<bool> maximum;  // of the totals: else sums
    std::vector<DType> out;
    std::vector<bool> wide;  // of the outputs
  };
  // Rows of 2 to 16384 elements.
  static bool supports(const Shape& shape);
  RowsPass(const Expr& expr, const Shape& shape, std::vector<Type> in, const Options& options,
           CudaDevice& device);
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ebb::cuda
