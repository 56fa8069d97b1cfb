// Code generation for maps whose tensors all have one shape, or one element: a list of segments.
#pragma once

#include <vector>

#include "codegen/ir.h"
#include "codegen/target.h"
#include "core/dtype.h"
#include "ir/expr.h"

namespace ebb::codegen {

// An operand has the count of elements of its segment, or one.
enum class FlatOperand : uint8_t { full, scalar };

struct FlatForm {
  Expr expr;
  std::vector<FlatOperand> kinds;  // of the inputs
  std::vector<DType> in, out;
  int64_t segments = 1;    // most of them in a launch
  bool segmented = false;  // false: one, without a search
  bool unaligned = false;  // single elements only
  int64_t elements = 0;    // of all segments; 0: they do not matter
};

// A generated kernel and how its parameter struct is laid out: `segments` (u32) at 0 if segmented,
// then entries {u32 first block, 4 bytes, u64 count, pointers}. A thread block processes `chunk`
// elements of one segment.
struct FlatKernel {
  Kernel kernel;
  int threads = 256, vector = 1;
  int64_t chunk = 0, first_entry = 0, entry_bytes = 0, parameter_bytes = 0;
  std::vector<size_t> used;  // inputs with a pointer; the outputs follow
};
// Bytes of an entry with so many pointers.
inline int64_t flat_entry_bytes(size_t pointers) { return 16 + 8 * static_cast<int64_t>(pointers); }

FlatKernel write_flat(const FlatForm& form, const Target& target);

// Bytes that a kernel's parameters may take.
inline constexpr int64_t most_parameters = 32764;

}  // namespace ebb::codegen
