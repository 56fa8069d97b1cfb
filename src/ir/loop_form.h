// LoopForm: how a fused loop computes a use of an op. It is all that the fuser of loops
// (passes/fuse_loops.h) knows of an op.
#pragma once

#include <span>
#include <vector>

#include "ir/op.h"

namespace ebb {

// The reductions of a loop, for an op that writes itself into it.
class LoopReductions {
 public:
  virtual ~LoopReductions() = default;
  // Of the operand, over the dims of the op's form and, where that has groups, the channels of
  // each: the maximum, or `scale` times the sum.
  virtual Scalar reduced(const Scalar& operand) = 0;
  // The sum over the channels of each group of an operand that has one value for each channel.
  virtual Scalar group_sum(const Scalar& operand) = 0;
};

struct LoopForm {
  Shape space;                     // the iteration space
  std::vector<int64_t> dims = {};  // of the space, reduced; none: elementwise
  int64_t groups = 0;              // of channels that share reductions; 0: none do
  bool maximum = false;            // else sums,
  double scale = 1;                // times this
  bool starts = false;             // a loop may grow from it
  // Results whose values are sums of each image and are still to be summed over the images.
  std::vector<size_t> summed_over_images = {};
  // The results, of the operands; one each.
  std::vector<Scalar> (*write)(const Signature&, std::span<const Scalar> x,
                               LoopReductions& reductions) = nullptr;
};

}  // namespace ebb
