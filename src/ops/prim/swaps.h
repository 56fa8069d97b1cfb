// Swaps: operands of which neighbouring runs of elements are read in each other's place, the
// partners of a rotation. They replace two `slice`s and a `concat` before the op, without copies.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/list_of.h"
#include "base/optional_text.h"
#include "ir/op.h"

namespace ebb::ops {

// `operand` is its tensor with the runs 2 j and 2 j + 1 of `run` elements of the last dim in each
// other's place.
struct Swap {
  int64_t operand = 0, run = 0;
};

std::string text_of(const Swap& s);               // "1:64"
void parse_text(Swap& s, std::string_view text);  // throws Error

class Swaps final : public OptionalText {
 public:
  Swaps() = default;
  Swaps(std::initializer_list<Swap> swaps) : all_(swaps) {}  // operands ascend
  bool empty() const override { return all_.empty(); }
  std::string text() const override { return all_.text(); }  // "1:64,3:64"
  void parse(std::string_view text) override { all_.parse(text); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }
  int64_t run_of(size_t operand) const;   // 0: it is not swapped
  void add(size_t operand, int64_t run);  // one that is not swapped so far

 private:
  ListOf<Swap> all_;
};

// Throws Error, which names `subject`, unless indices rise within the operands, and pairs of runs
// fill their last dims.
void check_swaps(const Swaps& s, std::span<const Type> operands, std::string_view subject);

// x with neighbouring runs of its last dim swapped; `run` divides half of it.
Value swap_runs(Value x, int64_t run);
std::vector<Value> swap_values(const Swaps& s, std::vector<Value> operands);

}  // namespace ebb::ops
