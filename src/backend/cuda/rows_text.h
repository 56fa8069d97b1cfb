// The text of passes over rows: totals along the last dim, what is made of them and the rows, and
// sums of that across rows.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/columns.h"
#include "backend/cuda/ptx_index.h"
#include "ir/expr.h"
#include "ir/space.h"

namespace ebb::cuda {

// What an output has a value for; of a stripe of rows: every column's sum.
enum class RowsOutput : uint8_t { element, row, stripe };

// The expression takes the inputs, then the totals; it gives the totals' terms, then the outputs. A
// term may use the totals before its own.
struct RowsForm {
  Expr expr;
  std::vector<DType> in, out;
  std::vector<bool> maximum;    // of the totals: else sums
  std::vector<RowsOutput> per;  // of the outputs
  int64_t stripe = 0;           // rows that are summed; 0: none are
  Space space;                  // [rows..., length]; strides of the inputs, then of elements
  ColumnsForm columns = {};     // of the inputs

  size_t totals() const { return maximum.size(); }
  int64_t length() const { return space.sizes.back(); }
  int64_t rows() const { return space.numel(0, space.rank() - 1); }
  // From row to row of a stripe.
  int64_t row_stride(size_t i) const {
    return space.rank() > 1 ? space.strides[i][static_cast<size_t>(space.rank()) - 2] : 0;
  }
};

// How the work is cut: `lanes` threads a row, each with `steps` vectors of it, `lanes` apart. They
// work on one row or, one by one, on those of a stripe.
struct RowsLayout {
  enum class Place : uint8_t {
    none,   // not used
    row,    // one value a row
    kept,   // read once a row, in registers until the end
    fixed,  // coefficients, the same for all rows of a stripe: read once
    late,   // read where it is used: other coefficients, and what does not fit
  };
  int vector = 1, lanes = 32, steps = 1, threads = 128;
  int registers = 64;        // that a thread may have, about
  std::vector<Place> place;  // of the inputs
};
inline constexpr int64_t longest_row = 16384, longest_striped_row = 8192;
RowsLayout rows_layout(const RowsForm& form, int multiprocessors, bool unaligned);

// The round in which each total is taken: after those that its term uses.
std::vector<int> rounds_of(const RowsForm& form);

// A generated kernel; like StridedText. Its outputs are those of the form.
struct RowsText {
  std::string text;
  Parameters parameters;
  std::vector<int64_t> pointers, alignment;
  std::vector<size_t> used;
  int64_t blocks = 0;
  int threads = 0;
};
RowsText write_rows(const RowsForm& form, const RowsLayout& layout, int capability);

}  // namespace ebb::cuda
