// Parts: tensors that an op reads, or writes, as several that lie side by side along the last dim.
// What `concat` before it and `slice` behind it would copy stays where it is.
#pragma once

#include <span>
#include <vector>

#include "ir/op.h"

namespace ebb::ops {

// Every operand or result in parts is cut alike.
struct Parts {
  std::vector<int64_t> widths;  // sizes of the last dim, in order; [] or two and more
  std::vector<int64_t> joined;  // operands that come as parts, rising
  std::vector<int64_t> cut;     // results that leave as parts, rising
  void fields(auto&& f) {
    f("widths", widths);
    f("joined", joined);
    f("cut", cut);
  }
  bool joins(size_t operand) const;
  bool cuts(size_t result) const;
  int64_t width() const;  // of the whole
};

// Throws Error, which names `subject`, unless widths are positive and indices rise within
// `operands` and `results`.
void check_parts(const Parts& p, size_t operands, size_t results, std::string_view subject);

// The operands of an op whose inputs are `in`, each whole. Throws Error where parts do not fit.
std::vector<Type> whole_types(const Parts& p, std::span<const Type> in, std::string_view subject);
std::vector<Value> whole_values(const Parts& p, std::span<const Value> in);

// The operand that input tensor `in` is, or is a part of.
size_t operand_of(const Parts& p, size_t in);

// Whether output tensor `out` and input tensor `in` are the same part, or both whole: only then may
// one take the memory of the other while other threads still read.
bool same_part(const Parts& p, size_t out, size_t in);

// The outputs of an op whose results are `whole`.
std::vector<Type> cut_types(const Parts& p, std::span<const Type> whole);
std::vector<Value> cut_values(const Parts& p, std::span<const Value> whole);

}  // namespace ebb::ops
