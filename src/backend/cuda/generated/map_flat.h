// Code generation for maps whose tensors all have one shape, or one element: a list of segments.
#pragma once

#include <vector>

#include "backend/cuda/generated/map.h"
#include "backend/cuda/generated/work_split.h"
#include "codegen/ir.h"

namespace ebb::cuda {

struct FlatForm {
  Expr expr;
  std::vector<SegmentedMap::Operand> kinds;  // of the inputs
  std::vector<DType> in, out;
  int64_t segments = 1;    // most of them in a launch
  bool segmented = false;  // false: one, without a search
  bool unaligned = false;  // single elements only
  int64_t elements = 0;    // of all segments
  int sm_count = 0;        // 0: elements do not matter
};

// A generated kernel and how its parameter struct is laid out: `segments` (u32) at 0 if segmented,
// then entries {u32 first block, 4 bytes, u64 count, pointers}. A thread block processes `chunk`
// elements of one segment.
struct FlatText {
  codegen::Kernel code;
  int threads = 256, vector = 1;
  int64_t chunk = 0, first_entry = 0, entry_bytes = 0, parameter_bytes = 0;
  std::vector<size_t> used;  // inputs with a pointer; the outputs follow
};
// Bytes of an entry with so many pointers.
inline int64_t flat_entry_bytes(size_t pointers) { return 16 + 8 * static_cast<int64_t>(pointers); }

FlatText write_flat(const FlatForm& form, int capability);

// Bytes that a kernel's parameters may take.
inline constexpr int64_t most_parameters = 32764;

}  // namespace ebb::cuda
