// The text of passes over rows: totals along the last dim, and what is made of them and the rows.
#pragma once

#include <string>
#include <vector>

#include "backend/cuda/ptx_index.h"
#include "ir/expr.h"
#include "ir/space.h"

namespace ebb::cuda {

// The formula takes the inputs, then the totals; it gives the totals' terms, then the outputs. A
// term may use the totals before its own.
struct RowsForm {
  Expr expr;
  std::vector<DType> in, out;
  std::vector<bool> maximum;  // of the totals: else sums
  std::vector<bool> wide;     // of the outputs: a value an element; else one a row
  Space space;                // [rows..., length]; strides of the inputs, then of a wide output

  size_t totals() const { return maximum.size(); }
  int64_t length() const { return space.sizes.back(); }
  int64_t rows() const { return space.numel(0, space.rank() - 1); }
};

// How the work is cut: `lanes` threads a row, each with `steps` vectors of it, `lanes` apart.
struct RowsLayout {
  enum class Place : uint8_t {
    none,  // not used
    row,   // one value a row
    kept,  // read once, in registers until the end
    late,  // read where it is used: coefficients, and what does not fit
  };
  int vector = 1, lanes = 32, steps = 1, threads = 128;
  int registers = 64;        // that a thread may have, about
  std::vector<Place> place;  // of the inputs
};
inline constexpr int64_t longest_row = 16384;
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
