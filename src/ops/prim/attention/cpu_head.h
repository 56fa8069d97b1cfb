// One head of a tensor [N,T,A,K] and its moves to and from dense f32 tiles; for the CPU kernels of
// attention and its gradient.
#pragma once

#include <algorithm>

#include "backend/cpu/simd/tiles.h"
#include "ops/prim/attention/packed_qkv.h"

namespace ebb::ops {

// Queries of one tile, and keys of one packed panel.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kPanel = 64;

// The rows of one sample and head.
struct Head {
  DType dtype = DType::f32;
  void* first = nullptr;  // its row 0
  int64_t step = 0;       // elements from row to row
  int64_t k = 0;
};

// Head `i` of N*A in q, k, v or a gradient of theirs with `rows` rows a sample.
inline Head head_of(const AttentionSizes& z, DType dtype, const void* tensor, int64_t i,
                    int64_t rows) {
  const int64_t at = i / z.a * rows * z.step() + i % z.a * z.k;
  auto* base = const_cast<char*>(static_cast<const char*>(tensor));
  return {dtype, base + at * size_of(dtype), z.step(), z.k};
}

// The same of o or its gradient.
inline Head out_head_of(AttentionSizes z, DType dtype, const void* tensor, int64_t i) {
  z.packed = false;
  return head_of(z, dtype, tensor, i, z.t);
}

// Rows [begin, begin + count).
struct RowRange {
  int64_t begin = 0, count = 0;
};

inline int64_t rounded_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// to [count,width] = factor * rows; columns beyond K are 0.
inline void read_rows(const Head& h, RowRange r, float factor, float* to) {
  const int64_t width = rounded_up(h.k, ebb::cpu::kTileLanes);
  visit_dtype(h.dtype, [&](auto zero) {
    for (int64_t i = 0; i < r.count; ++i, to += width) {
      const auto* from = static_cast<const decltype(zero)*>(h.first) + (r.begin + i) * h.step;
#pragma omp simd
      for (int64_t d = 0; d < h.k; ++d) to[d] = factor * static_cast<float>(from[d]);
      std::fill(to + h.k, to + width, 0.0f);
    }
  });
}

// to [K,kPanel] = the rows transposed; missing rows are 0.
inline void read_panel(const Head& h, RowRange r, float* to) {
  visit_dtype(h.dtype, [&](auto zero) {
    for (int64_t i = 0; i < kPanel; ++i) {
      const auto* from = static_cast<const decltype(zero)*>(h.first) + (r.begin + i) * h.step;
      for (int64_t d = 0; d < h.k; ++d)
        to[d * kPanel + i] = i < r.count ? static_cast<float>(from[d]) : 0.0f;
    }
  });
}

// rows = factor * from [count,width].
inline void write_rows(const Head& h, RowRange r, float factor, const float* from) {
  const int64_t width = rounded_up(h.k, ebb::cpu::kTileLanes);
  visit_dtype(h.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < r.count; ++i, from += width) {
      auto* to = static_cast<T*>(h.first) + (r.begin + i) * h.step;
#pragma omp simd
      for (int64_t d = 0; d < h.k; ++d) to[d] = static_cast<T>(factor * from[d]);
    }
  });
}

// Hands out pieces of a workspace, each on its own cache line.
class Carver {
 public:
  // Where the next `floats` floats lie, in floats from the start.
  int64_t take(int64_t floats) {
    const int64_t at = end_;
    end_ += rounded_up(floats, 16);
    return at;
  }
  int64_t bytes() const { return end_ * 4; }

 private:
  int64_t end_ = 0;
};

}  // namespace ebb::ops
