#include "backend/cuda/ptx/index.h"

#include <bit>

namespace ebb::cuda {

Reg Draft::number(int64_t value) {
  require(0 <= value && value < int64_t{1} << 32, "ptx: a size or stride is too large (", value,
          ")");
  return ptx.parameter(RegKind::b32, parameters.add_value(static_cast<uint32_t>(value)));
}

Reg Draft::pointer(std::vector<int64_t>& pointers) {
  pointers.push_back(parameters.add_value(static_cast<void*>(nullptr)));
  return ptx.pointer_parameter(pointers.back());
}

Coordinates::Coordinates(Draft& d, const std::vector<int64_t>& sizes) {
  for (const int64_t size : sizes) {
    if (dims_.empty()) {  // the outermost takes what is left
      dims_.emplace_back();
      continue;
    }
    const Reciprocal by(size);
    dims_.push_back({d.number(size), d.number(by.multiplier), d.number(by.shift)});
  }
}

std::vector<Reg> Coordinates::of(Draft& d, Reg number) const {
  std::vector<Reg> c(dims_.size());
  for (size_t i = dims_.size(); i-- > 1;) {
    const Reg q = quotient(d.ptx, number, dims_[i].multiplier, dims_[i].shift);
    c[i] = d.ptx.b32("sub.u32", number, d.ptx.b32("mul.lo.u32", q, dims_[i].size));
    number = q;
  }
  if (!c.empty()) c[0] = number;
  return c;
}

Strides::Strides(Draft& d, const std::vector<int64_t>& strides) {
  for (const int64_t s : strides) strides_.push_back(s == 0 ? Reg{} : d.number(s));
}

Reg Strides::offset(Draft& d, const std::vector<Reg>& coordinates) const {
  Reg sum;
  for (size_t i = 0; i < strides_.size(); ++i) {
    if (!strides_[i]) continue;
    sum = sum ? d.ptx.b64("mad.wide.u32", coordinates[i], strides_[i], sum)
              : d.ptx.b64("mul.wide.u32", coordinates[i], strides_[i]);
  }
  return sum;
}

SegmentChoice::SegmentChoice(Draft& d, std::span<const int64_t> widths, int vector, Reg column) {
  int64_t begin = 0;
  for (const int64_t width : widths) {
    columns_.push_back(column);
    inside_.emplace_back();
    if (begin > 0) {
      const Reg first = d.number(begin / vector);
      inside_.back() = d.ptx.test("setp.ge.u32", column, first);
      columns_.back() = d.ptx.b32("sub.u32", column, first);
    }
    begin += width;
  }
}

Reg SegmentChoice::choose(Draft& d, std::span<const Reg> by_segment) const {
  Reg chosen = by_segment[0];
  for (size_t k = 1; k < by_segment.size(); ++k)
    chosen = d.ptx.b64("selp.b64", by_segment[k], chosen, inside_[k]);
  return chosen;
}

Reg address(Ptx& p, Reg base, Reg offset, DType dtype) {
  if (!offset) return base;
  const int shift = std::countr_zero(static_cast<uint64_t>(size_of(dtype)));
  return p.b64("add.s64", base, shift == 0 ? offset : p.b64("shl.b64", offset, shift));
}

Reg thread_number(Ptx& p, int threads) {
  return p.b32("mad.lo.u32", p.b32("mov.u32", "%ctaid.x"), threads, p.b32("mov.u32", "%tid.x"));
}

}  // namespace ebb::cuda
