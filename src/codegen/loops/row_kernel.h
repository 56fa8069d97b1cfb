// Kernels of passes over rows: reductions along the last dim, what is made of them and the rows,
// and sums of that across rows.
#pragma once

#include <algorithm>
#include <vector>

#include "codegen/loops/loop_kernel.h"
#include "codegen/loops/slices.h"
#include "codegen/loops/swaps.h"
#include "codegen/target.h"
#include "core/dtype.h"
#include "ir/expr.h"
#include "ir/iteration_space.h"

namespace ebb::codegen {

// What an output has a value for; partial: a column reduction over `partial_rows` rows.
enum class RowExtent : uint8_t { element, row, partial };

// Inputs that are several tensors side by side along a dim of rows: `widths` of it each.
struct RowSegments {
  std::vector<int64_t> widths;            // []: none are
  std::vector<bool> segmented, repeated;  // by input; repeated: of size 1 along the dim
  int64_t dim = 0;                        // of the space; for RowPass from the last, -1, on
  bool any() const { return !widths.empty(); }
  size_t of(size_t i) const { return any() && segmented[i] ? widths.size() : 1; }
};

// The expression takes the inputs, then the reductions; it gives the reductions' operands, then the
// outputs. A term may use the reductions before its own.
struct RowForm {
  Expr expr;
  std::vector<DType> in, out;
  std::vector<bool> maximum;       // of the reductions: else sums
  std::vector<RowExtent> extents;  // of the outputs
  int64_t partial_rows = 0;        // rows that are summed; 0: none are
  // [rows..., row...], the dims of a row being the reduced ones; strides of the inputs, then of
  // elements. What changes along a row does so along its last dim.
  IterationSpace space;
  SlicesForm slices = {};          // of the inputs
  SwapsForm swaps = {};            // of the inputs
  RowSegments segments = {};       // the space is of the whole inputs, dense
  std::vector<int64_t> same = {};  // by input, an earlier one that is the same tensor, or -1
  bool unaligned = false;          // single elements only
  int uses = 1;                    // that share a launch
  bool alternate = false;          // block by block, for uses of as many rows
  int64_t shared_rows = 0;         // of all of them; 0: its own

  size_t reductions() const { return maximum.size(); }
  // The dims of rows, and those behind them of a row.
  int64_t row_dim() const { return std::ranges::find(space.reduced, true) - space.reduced.begin(); }
  int64_t length() const { return space.numel(row_dim(), space.rank()); }
  int64_t rows() const { return space.numel(0, row_dim()); }
  // The elements of a row that every input has, or repeats, one behind the other.
  int64_t run() const { return space.sizes.back(); }
  // From row to row of a partial reduction.
  int64_t row_stride(size_t i) const {
    return row_dim() > 0 ? space.strides[i][static_cast<size_t>(row_dim()) - 1] : 0;
  }
};

// The input whose vectors are those of input i, which then reads its elements in another order: i
// itself, or an earlier one.
size_t source_of(const RowForm& form, size_t i, int64_t vector);

// Partitioning: `lanes` threads per row, each with `steps` vectors of it, `lanes` apart. They
// process one row or, one by one, those of a partial column reduction.
struct RowLayout {
  enum class Residency : uint8_t {
    none,            // not used
    row,             // one value per row
    resident,        // read once per row, in registers until its end
    loop_invariant,  // coefficients, the same for all rows of a partial reduction: read once
    streamed,        // read at every use: other coefficients, and what does not fit
  };
  int vector = 1, lanes = 32, steps = 1, threads = 128;
  int registers = 64;                // estimated limit per thread
  std::vector<Residency> residency;  // of the inputs
};
inline constexpr int64_t longest_row = 16384, longest_row_with_partials = 8192;
RowLayout row_layout(const RowForm& form, const Target& target);

// The phase of each reduction: after those that its operand uses.
std::vector<int> rounds_of(const RowForm& form);

LoopKernel write_rows(const RowForm& form, const RowLayout& layout, const Target& target);

}  // namespace ebb::codegen
