// Segments: operands or results that consist of several tensors, concatenated along one dim, the
// channels (the last) or the tokens. They replace a `concat` before the op and `slice`s after it,
// without copies.
#pragma once

#include <span>
#include <vector>

#include "base/optional_text.h"
#include "ir/op.h"

namespace ebb::ops {

// All segmented operands and results have the same widths.
struct Segments {
  std::vector<int64_t> widths;         // sizes of the dim, in order; [] or two and more
  std::vector<int64_t> segmented_in;   // segmented operands, ascending
  std::vector<int64_t> segmented_out;  // segmented results, ascending
  // From the last, -1, on. Along others than it an operand may have size 1 in all its segments: the
  // weights of each.
  OptionalNumber<-1> dim = {};
  void fields(auto&& f) {
    f("widths", widths);
    f("segmented_in", segmented_in);
    f("segmented_out", segmented_out);
    f("segment_dim", dim);
  }
  bool has_in(size_t operand) const;
  bool has_out(size_t result) const;
  int64_t width() const;  // sum of the widths
};

// Throws Error, which names `subject`, unless widths are positive and indices rise within
// `operands` and `results`.
void check_segments(const Segments& p, size_t operands, size_t results, std::string_view subject);

// The operands of an op whose inputs are `in`, concatenated. Throws Error where segments do not
// fit.
std::vector<Type> concat_types(const Segments& p, std::span<const Type> in,
                               std::string_view subject);
std::vector<Value> concat_values(const Segments& p, std::span<const Value> in);

// Whether these tensors, the segments of an operand, have size 1 each along the dim, for all of it.
bool repeat_segments(const Segments& p, std::span<const Type> segments);

// The operand that input tensor `in` is, or is a segment of.
size_t operand_of(const Segments& p, size_t in);

// Whether output tensor `out` and input tensor `in` are the same segment, or both not segmented:
// only then may they share memory.
bool same_segment(const Segments& p, size_t out, size_t in);

// The outputs of an op whose results before splitting are `full`.
std::vector<Type> split_types(const Segments& p, std::span<const Type> full);
std::vector<Value> split_values(const Segments& p, std::span<const Value> full);

}  // namespace ebb::ops
