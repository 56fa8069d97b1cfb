#include "codegen/index.h"

#include "base/fast_div.h"

namespace ebb::codegen {

U32 quotient(U32 n, U32 multiplier, U32 shift) { return mul_hi(n + n, multiplier) >> shift; }

U32 quotient(Builder& b, U32 n, int64_t d) {
  const FastDiv by(d);
  const U32 multiplier = b.number(by.multiplier);
  return quotient(n, multiplier, b.number(by.shift));
}

Coordinates::Coordinates(Builder& b, const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) {
    if (dims_.empty()) {  // the outermost takes what is left
      dims_.emplace_back();
      continue;
    }
    const FastDiv by(size);
    dims_.push_back({b.number(size), b.number(by.multiplier), b.number(by.shift)});
  }
}

std::vector<U32> Coordinates::of(U32 number) const {
  std::vector<U32> c(dims_.size());
  for (size_t i = dims_.size(); i-- > 1;) {
    const U32 q = quotient(number, dims_[i].multiplier, dims_[i].shift);
    c[i] = number - q * dims_[i].size;
    number = q;
  }
  if (!c.empty()) c[0] = number;
  return c;
}

Strides::Strides(Builder& b, const std::vector<int64_t>& strides) {
  for (const int64_t s : strides) strides_.push_back(s == 0 ? U32() : b.number(s));
}

U64 Strides::offset(const std::vector<U32>& coordinates) const {
  U64 sum;
  for (size_t i = 0; i < strides_.size(); ++i)
    if (strides_[i]) sum = mul_wide_add(coordinates[i], strides_[i], sum);
  return sum;
}

SegmentChoice::SegmentChoice(Builder& b, std::span<const int64_t> widths, int vector, U32 column) {
  int64_t begin = 0;
  for (const int64_t width : widths) {
    columns_.push_back(column);
    inside_.emplace_back();
    if (begin > 0) {
      const U32 first = b.number(begin / vector);
      inside_.back() = column >= first;
      columns_.back() = column - first;
    }
    begin += width;
  }
}

U64 SegmentChoice::choose(std::span<const U64> by_segment) const {
  U64 chosen = by_segment[0];
  for (size_t k = 1; k < by_segment.size(); ++k) chosen = select(inside_[k], by_segment[k], chosen);
  return chosen;
}

U64 address(U64 base, U64 offset, DType dtype) {
  if (!offset) return base;
  const int shift = std::countr_zero(static_cast<uint64_t>(size_of(dtype)));
  return base + (shift == 0 ? offset : offset << shift);
}

U32 thread_number(Builder& b, int threads) {
  const U32 block = b.block_index();
  return mul_add(block, threads, b.thread_index());
}

}  // namespace ebb::codegen
