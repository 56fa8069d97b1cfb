// Reducing passes over broadcast tensors as generated kernels, prepared once and run many times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"
#include "core/shape.h"
#include "ir/expr.h"

namespace ebb::cuda {

// out_k = scale * sum (or the maximum) over the dims of result k of `expr`, in the order of the
// kept dims. Sums have a fixed order: a generated kernel reduces chunks of the reduced dims in
// f32, and a second one combines the chunks if there are several.
class ReducePass {
 public:
  struct Options {
    std::vector<int64_t> dims;
    bool maximum = false;
    double scale = 1;
    bool unaligned = false;  // see Signature::aligned
    std::vector<DType> out;  // by result
  };
  static bool supports(const Shape& shape);
  ReducePass(const Expr& expr, const Shape& shape, std::vector<Type> in, const Options& options,
             CudaDevice& device);
  int64_t workspace() const;  // bytes
  void run(std::span<void* const> in, std::span<void* const> out, void* workspace) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ebb::cuda
