// LoopNode: a loop that is to take the place of nodes of a graph, and the views it may read and
// write.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ops/loop/op.h"
#include "passes/views/copies.h"

namespace ebb {

struct LoopNode {
  struct Input {
    int32_t value;
    Shape shape;  // under which it is read
  };
  ops::Loop loop;
  std::vector<Input> in;
  // The values of the graph that its outputs are, maybe under other shapes.
  std::vector<int32_t> out;
  std::string at;

  // Whether an input is read through a view.
  bool is_viewed(size_t input) const {
    const size_t operand = operand_of(loop.segments, input);
    return loop.segments.has_in(operand) || loop.slices.of(operand) || loop.swaps.run_of(operand);
  }
  Signature signature(const Graph& g) const;
};
// Of a loop or of a pointwise node; none of other nodes.
std::optional<LoopNode> loop_node_of(const Graph& g, const Node& n);

// Each of these is the loop that a copy of `l` becomes.

// Reads the operands that are `whole` as the segments of which it is the concatenation.
LoopNode reading_segments(const Graph& g, LoopNode l, int32_t whole,
                          std::span<const int32_t> segments);
// The same along another dim (from the last on), of `widths`; the inputs may have size 1 there.
struct SegmentInputs {
  int64_t dim = -1;
  std::vector<int64_t> widths;
  std::vector<LoopNode::Input> in;
};
LoopNode reading_segments(LoopNode l, int32_t whole, const SegmentInputs& segments);
// Also writes `whole`, the concatenation that it reads by segments.
LoopNode also_writing(const Graph& g, LoopNode l, int32_t whole, size_t operand);
// Reads input `in` as [begin, end) of a dim (from the last, -1, on) of `base`, `size` long there.
struct OperandSlice {
  int32_t base = -1;
  int64_t dim = -1, begin = 0, end = 0, size = 0;
};
LoopNode reading_slice(LoopNode l, size_t in, const OperandSlice& view);
// Reads input `in`, a swap of runs, as the tensor in which they are in order.
LoopNode reading_swap(LoopNode l, size_t in, int32_t base, int64_t run);
// Writes its result `result` as these segments.
LoopNode writing_segments(const Graph& g, LoopNode l, size_t result,
                          std::span<const int32_t> segments);
// Writes these outputs, results of one type, as one tensor: `whole`. It comes last.
LoopNode writing_concatenation(LoopNode l, std::span<const size_t> outputs, int32_t whole);

// Adds the loop, its operands under the shapes under which it reads them.
void add_loop(const LoopNode& l, Rewriter& rw);

}  // namespace ebb
