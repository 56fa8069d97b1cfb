// Elementwise passes over broadcast tensors as generated kernels, prepared once and run many times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"
#include "codegen/loops/map_flat.h"
#include "codegen/loops/segments.h"
#include "codegen/loops/slices.h"
#include "codegen/loops/swaps.h"
#include "core/shape.h"
#include "ir/expr.h"

namespace ebb::cuda {

// One expression: out_k[i] = result k at index i of `shape`. An output may alias an input of the
// same type; a segment only the same segment.
struct MapUse {
  Expr expr;
  Shape shape;
  std::vector<Type> in;  // before segmentation
  std::vector<DType> out;
  codegen::SegmentsForm segments = {};
  codegen::SlicesForm slices = {};  // of `in`, which are the slices
  codegen::SwapsForm swaps = {};    // of `in`
  std::vector<int64_t> same = {};   // by input, an earlier one that is the same tensor, or -1
  size_t concatenated = 0;          // so many last results are columns of one tensor
  bool unaligned = false;           // see Signature::aligned
};

// One use, or several in one launch that do not depend on each other.
class MapPass {
 public:
  // False: 2^31 elements and more at one index of the outermost dim, where an input is broadcast.
  static bool supports(const Shape& shape, const std::vector<Type>& in);
  static bool supports_segments(const Shape& shape);
  // Of several: all have elements, of fewer than 2^31 in all, and one kernel.
  static bool share_a_launch(const std::vector<MapUse>& uses, const CudaDevice& device);
  MapPass(const std::vector<MapUse>& uses, CudaDevice& device);
  // The tensors of the first use, of the second, ...; all segments, in order; of slices, the whole
  // tensors.
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<const State> state_;
};

// One expression on many lists of tensors in one launch (in a few, if there are hundreds): every
// segment has its own count of elements. All tensors of a segment are dense and have that count,
// or are one element.
class SegmentedMap {
 public:
  using Operand = codegen::FlatOperand;
  struct Options {
    std::vector<Operand> kinds;  // of the inputs
    std::vector<DType> in, out;
    std::vector<int64_t> counts;  // elements, by segment
    bool unaligned = false;       // see Signature::aligned
  };
  SegmentedMap(const Expr& expr, const Options& options, CudaDevice& device);
  // Tensors of segment s: in[s * inputs + i], out[s * outputs + k].
  void run(std::span<void* const> in, std::span<void* const> out) const;

 private:
  std::shared_ptr<const MapPass::State> state_;
};

}  // namespace ebb::cuda
