// Segments: tensors that an op reads, or writes, as several that lie side by side along the last
// dim. What `concat` before it and `slice` behind it would copy stays where it is.
#pragma once

#include <span>
#include <vector>

#include "ir/op.h"

namespace ebb::ops {

// Every operand or result in parts is split alike.
struct Segments {
  std::vector<int64_t> widths;         // sizes of the last dim, in order; [] or two and more
  std::vector<int64_t> segmented_in;   // operands that come as parts, rising
  std::vector<int64_t> segmented_out;  // results that leave as parts, rising
  void fields(auto&& f) {
    f("widths", widths);
    f("segmented_in", segmented_in);
    f("segmented_out", segmented_out);
  }
  bool has_in(size_t operand) const;
  bool has_out(size_t result) const;
  int64_t width() const;  // of the whole
};

// Throws Error, which names `subject`, unless widths are positive and indices rise within
// `operands` and `results`.
void check_segments(const Segments& p, size_t operands, size_t results, std::string_view subject);

// The operands of an op whose inputs are `in`, each whole. Throws Error where parts do not fit.
std::vector<Type> concat_types(const Segments& p, std::span<const Type> in,
                               std::string_view subject);
std::vector<Value> concat_values(const Segments& p, std::span<const Value> in);

// The operand that input tensor `in` is, or is a part of.
size_t operand_of(const Segments& p, size_t in);

// Whether output tensor `out` and input tensor `in` are the same part, or both whole: only then may
// one take the memory of the other while other threads still read.
bool same_segment(const Segments& p, size_t out, size_t in);

// The outputs of an op whose results are `whole`.
std::vector<Type> split_types(const Segments& p, std::span<const Type> whole);
std::vector<Value> split_values(const Segments& p, std::span<const Value> whole);

}  // namespace ebb::ops
