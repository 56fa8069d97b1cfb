// LoopForm: how a fused loop computes a use of an op. It is all that the fuser of loops
// (passes/fusion/fuse_loops.h) knows of an op.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ir/op.h"

namespace ebb {

// The reductions of a loop, for an op that writes itself into it. They are all of the form's kind.
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
  Shape space;  // the iteration space; of an op without dims, the shape of its results
  // The operand whose producer's space the op belongs to, where its own shows too little of it: the
  // sums over the pixels that the gradient of a norm reads.
  std::optional<size_t> space_of = {};
  std::vector<int64_t> dims = {};  // of the space, reduced; none: elementwise
  int64_t groups = 0;              // of channels that share reductions; 0: none do
  bool maximum = false;            // else sums,
  double scale = 1;                // times this
  // A loop may grow from it: along rows, where it reduces them, and over pixels where it has
  // groups.
  bool starts = false;
  // Each result is a reduction of an expression and nothing else, so that sums over columns may be
  // finished behind the loop.
  bool only_reduces = false;
  size_t inside = 0;  // so many first operands must be results of the same loop
  // Results whose values are sums of each image and are still to be summed over the images.
  std::vector<size_t> summed_over_images = {};
  // The results, of the operands; one each.
  std::vector<Scalar> (*write)(const Signature&, std::span<const Scalar> x,
                               LoopReductions& reductions) = nullptr;
};

}  // namespace ebb
