#include "backend/cpu/copy.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace ebb::cpu {
namespace {

constexpr int64_t tile = 32;               // rows and columns of a transposed block
constexpr int64_t parallel_bytes = 65536;  // below this a second thread costs more than it brings

// Drops dims of size 1 and merges dims that are contiguous on both sides.
std::vector<StridedCopy::Dim> joined(const std::vector<StridedCopy::Dim>& dims) {
  std::vector<StridedCopy::Dim> out;
  for (const auto& d : dims) {
    if (d.size == 1) continue;
    if (!out.empty() && out.back().from == d.from * d.size && out.back().to == d.to * d.size)
      out.back() = {out.back().size * d.size, d.from, d.to};
    else
      out.push_back(d);
  }
  return out;
}

}  // namespace

StridedCopy::StridedCopy(std::vector<Dim> dims, int64_t element_bytes)
    : outer_(joined(dims)), column_{1, 1, 1}, element_(element_bytes) {
  if (!outer_.empty()) {
    column_ = outer_.back();
    outer_.pop_back();
  }
  contiguous_ = column_.from == 1 && column_.to == 1;
  if (!outer_.empty()) {
    auto row = outer_.end() - 1;
    const auto unit = std::find_if(outer_.begin(), outer_.end(), [](Dim d) { return d.from == 1; });
    if (!contiguous_ && unit != outer_.end()) row = unit;
    row_ = *row;
    outer_.erase(row);
  }
  for (const Dim& d : outer_) outer_size_ *= d.size;
}

void StridedCopy::run(const void* from, void* to) const {
  if (outer_size_ * row_.size * column_.size == 0) return;
  if (contiguous_) return run_rows(static_cast<const char*>(from), static_cast<char*>(to));
  const auto as = [&](auto zero) {
    using T = decltype(zero);
    run_elements(static_cast<const T*>(from), static_cast<T*>(to));
  };
  switch (element_) {
    case 1: return as(uint8_t{});
    case 2: return as(uint16_t{});
    case 4: return as(uint32_t{});
    case 8: return as(uint64_t{});
    default: fail("copy: elements of ", element_, " bytes are not known");
  }
}

namespace {

StridedCopy::Dim offset_of(const std::vector<StridedCopy::Dim>& dims, int64_t index) {
  StridedCopy::Dim at;
  for (size_t d = dims.size(); d-- > 0;) {
    at.from += index % dims[d].size * dims[d].from;
    at.to += index % dims[d].size * dims[d].to;
    index /= dims[d].size;
  }
  return at;
}

}  // namespace

void StridedCopy::run_rows(const char* from, char* to) const {
  const int64_t bytes = column_.size * element_, rows = row_.size, items = outer_size_ * rows;
#pragma omp parallel for schedule(static) if (items * bytes > parallel_bytes)
  for (int64_t item = 0; item < items; ++item) {
    const Dim at = offset_of(outer_, item / rows);
    const int64_t r = item % rows;
    std::memcpy(to + (at.to + r * row_.to) * element_, from + (at.from + r * row_.from) * element_,
                static_cast<size_t>(bytes));
  }
}

template <class T>
void StridedCopy::run_elements(const T* from, T* to) const {
  const int64_t blocks = (row_.size + tile - 1) / tile, items = outer_size_ * blocks;
  const Dim row = row_, column = column_;
  const bool parallel = outer_size_ * row.size * column.size * element_ > parallel_bytes;
#pragma omp parallel for schedule(static) if (parallel)
  for (int64_t item = 0; item < items; ++item) {
    const Dim at = offset_of(outer_, item / blocks);
    const int64_t first = item % blocks * tile, last = std::min(first + tile, row.size);
    for (int64_t c0 = 0; c0 < column.size; c0 += tile) {
      const int64_t c1 = std::min(c0 + tile, column.size);
      for (int64_t r = first; r < last; ++r)
        for (int64_t c = c0; c < c1; ++c)
          to[at.to + r * row.to + c * column.to] = from[at.from + r * row.from + c * column.from];
    }
  }
}

std::vector<StridedCopy::Dim> copy_dims(const Shape& sizes, const std::vector<int64_t>& from,
                                        const std::vector<int64_t>& to) {
  std::vector<StridedCopy::Dim> dims;
  for (int64_t d = 0; d < sizes.rank(); ++d)
    dims.push_back({sizes[d], from[static_cast<size_t>(d)], to[static_cast<size_t>(d)]});
  return dims;
}

}  // namespace ebb::cpu
