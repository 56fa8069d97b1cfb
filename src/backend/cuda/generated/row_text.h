// The text of passes over rows: reductions along the last dim, what is made of them and the rows,
// and sums of that across rows.
#pragma once

#include <vector>

#include "backend/cuda/generated/slices.h"
#include "backend/cuda/generated/swaps.h"
#include "codegen/ir.h"
#include "codegen/parameters.h"
#include "core/dtype.h"
#include "ir/expr.h"
#include "ir/iteration_space.h"

namespace ebb::cuda {

// What an output has a value for; partial: a column reduction over `partial_rows` rows.
enum class RowExtent : uint8_t { element, row, partial };

// The expression takes the inputs, then the reductions; it gives the reductions' operands, then the
// outputs. A term may use the reductions before its own.
struct RowForm {
  Expr expr;
  std::vector<DType> in, out;
  std::vector<bool> maximum;       // of the reductions: else sums
  std::vector<RowExtent> extents;  // of the outputs
  int64_t partial_rows = 0;        // rows that are summed; 0: none are
  IterationSpace space;            // [rows..., length]; strides of the inputs, then of elements
  SlicesForm slices = {};          // of the inputs
  SwapsForm swaps = {};            // of the inputs
  bool unaligned = false;          // single elements only

  size_t reductions() const { return maximum.size(); }
  int64_t length() const { return space.sizes.back(); }
  int64_t rows() const { return space.numel(0, space.rank() - 1); }
  // From row to row of a partial reduction.
  int64_t row_stride(size_t i) const {
    return space.rank() > 1 ? space.strides[i][static_cast<size_t>(space.rank()) - 2] : 0;
  }
};

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
RowLayout row_layout(const RowForm& form, int sm_count);

// The phase of each reduction: after those that its operand uses.
std::vector<int> rounds_of(const RowForm& form);

// A generated kernel; like StridedText. Its outputs are those of the form.
struct RowText {
  codegen::Kernel code;
  codegen::Parameters parameters;
  std::vector<int64_t> pointers;
  std::vector<size_t> used;
  int64_t blocks = 0;
  int threads = 0;
};
RowText write_rows(const RowForm& form, const RowLayout& layout, int capability);

}  // namespace ebb::cuda
