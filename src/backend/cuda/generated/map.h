// Elementwise passes over broadcast tensors as generated kernels, prepared once and run many times.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"
#include "backend/cuda/generated/segments.h"
#include "backend/cuda/generated/slices.h"
#include "backend/cuda/generated/swaps.h"
#include "core/shape.h"
#include "ir/expr.h"

namespace ebb::cuda {

// out_k[i] = result k of `expr` at index i of `shape`. An output may alias an input of the same
// type; a segment only the same segment.
class MapPass {
 public:
  // False: 2^31 elements and more at one index of the outermost dim, where an input is broadcast.
  static bool supports(const Shape& shape, const std::vector<Type>& in);
  static bool supports_segments(const Shape& shape);
  // `in` and `out` are types before segmentation; run() takes all segments, in order.
  struct Types {
    Shape shape;
    std::vector<Type> in;
    std::vector<DType> out;
    SlicesForm slices = {};          // of `in`, which are the slices
    SwapsForm swaps = {};            // of `in`
    std::vector<int64_t> same = {};  // by input, an earlier one that is the same tensor, or -1
    bool unaligned = false;          // see Signature::aligned
  };
  MapPass(const Expr& expr, Types types, SegmentsForm segments, CudaDevice& device);
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// Passes that do not depend on each other in one launch. run() takes the tensors of the first, of
// the second, ...
class MapPasses {
 public:
  struct Use {
    Expr expr;
    MapPass::Types types;
    SegmentsForm segments;
  };
  // All have elements, of fewer than 2^31 in all, and one text.
  static bool supports(const std::vector<Use>& uses, const CudaDevice& device);
  MapPasses(const std::vector<Use>& uses, CudaDevice& device);
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// One expression on many lists of tensors in one launch (in a few, if there are hundreds): every
// segment has its own count of elements. All tensors of a segment are dense and have that count,
// or are one element.
class SegmentedMap {
 public:
  enum class Operand : uint8_t { full, scalar };
  struct Options {
    std::vector<Operand> kinds;  // of the inputs
    std::vector<DType> in, out;
    std::vector<int64_t> counts;  // elements, by segment
    bool unaligned = false;       // see Signature::aligned
  };
  SegmentedMap(const Expr& expr, const Options& options, CudaDevice& device);
  // Addresses of segment s: in[s * inputs + i], out[s * outputs + k].
  void run(std::span<void* const> in, std::span<void* const> out) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ebb::cuda
