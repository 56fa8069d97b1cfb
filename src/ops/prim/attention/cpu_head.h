// One head of a tensor [N,T,A,K], and copies between it and dense f32 tiles; for the CPU kernels of
// attention and its gradient.
#pragma once

#include <algorithm>
#include <limits>

#include "backend/cpu/simd/tiles.h"
#include "base/round_up.h"
#include "ops/prim/attention/packed_qkv.h"

namespace ebb::ops {

// Queries of one tile, and keys of one packed panel.
constexpr int64_t kQueryBlock = 64;
constexpr int64_t kPanel = 64;
constexpr double kLog2e = 1.4426950408889634;  // scores are in units of log 2

// The rows of one sample and head.
struct Head {
  DType dtype = DType::f32;
  void* first = nullptr;   // its row 0
  int64_t row_stride = 0;  // elements from row to row
  int64_t k = 0;
};

// Head `i` of N*heads in a tensor that lies so.
inline Head head_of(const HeadView& at, int64_t heads, DType dtype, const void* tensor, int64_t i,
                    int64_t k) {
  const int64_t first = i / heads * at.n + i % heads * at.a;
  auto* base = const_cast<char*>(static_cast<const char*>(tensor));
  return {dtype, base + first * size_of(dtype), at.t, k};
}
// Head `i` of N*A in q, o or a gradient of theirs.
inline Head head_of(const AttentionSizes& z, const HeadView& at, DType dtype, const void* tensor,
                    int64_t i) {
  return head_of(at, z.a, dtype, tensor, i, z.k);
}
// Head `i` of N*H in k, v or a gradient of theirs.
inline Head key_head_of(const AttentionSizes& z, const HeadView& at, DType dtype,
                        const void* tensor, int64_t i) {
  return head_of(at, z.key_heads, dtype, tensor, i, z.k);
}

// Rows [begin, begin + count).
struct RowRange {
  int64_t begin = 0, count = 0;
};

// to [count,width] = factor * rows; columns beyond K are 0.
inline void read_rows(const Head& h, RowRange r, float factor, float* to, int64_t width) {
  visit_dtype(h.dtype, [&](auto zero) {
    for (int64_t i = 0; i < r.count; ++i, to += width) {
      const auto* from = static_cast<const decltype(zero)*>(h.first) + (r.begin + i) * h.row_stride;
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
      const auto* from = static_cast<const decltype(zero)*>(h.first) + (r.begin + i) * h.row_stride;
      for (int64_t d = 0; d < h.k; ++d)
        to[d * kPanel + i] = i < r.count ? static_cast<float>(from[d]) : 0.0f;
    }
  });
}

// rows = factor * from [count,width].
inline void write_rows(const Head& h, RowRange r, float factor, const float* from, int64_t width) {
  visit_dtype(h.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < r.count; ++i, from += width) {
      auto* to = static_cast<T*>(h.first) + (r.begin + i) * h.row_stride;
#pragma omp simd
      for (int64_t d = 0; d < h.k; ++d) to[d] = static_cast<T>(factor * from[d]);
    }
  });
}

// Floats from query to query and from key to key in a tile of scores.
struct ScoreStrides {
  int64_t query = 0, key = 0;
};

// Bias and masks of a tile of scores.
struct ScoreMask {
  AttentionSizes z;
  DType bias_dtype = DType::f32;
  BiasStrides strides;
  const void* bias = nullptr;            // none, if null
  const int64_t* key_lengths = nullptr;  // all keys, if null

  ScoreMask(const AttentionSizes& sizes, const Signature& s) : z(sizes) {
    if (!z.bias) return;
    bias_dtype = s.in[z.bias_at()].dtype;
    strides = bias_strides(s.in[z.bias_at()].shape);
  }
  // Of one call, which is unpacked.
  ScoreMask of(const Call& call) const {
    ScoreMask m = *this;
    if (z.bias) m.bias = call.in[call_at(z).bias];
    if (z.key_lengths) m.key_lengths = static_cast<const int64_t*>(call.in[call_at(z).key_lengths]);
    return m;
  }
  // Query t of head `i` of N*A attends to the keys below this.
  int64_t key_limit(int64_t i, int64_t t) const {
    const int64_t all = z.key_limit(t);
    return key_lengths ? std::clamp<int64_t>(key_lengths[i / z.a], 0, all) : all;
  }
  // Scores in units of log 2 of queries and keys of head `i`.
  void apply(int64_t i, RowRange queries, RowRange keys, float* scores, ScoreStrides at) const;
};

inline void ScoreMask::apply(int64_t i, RowRange queries, RowRange keys, float* scores,
                             ScoreStrides at) const {
  constexpr float log2e = kLog2e, none = -std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < queries.count; ++r, scores += at.query) {
    const int64_t t = queries.begin + r;
    const int64_t end = std::clamp<int64_t>(key_limit(i, t) - keys.begin, 0, keys.count);
    if (bias)
      visit_dtype(bias_dtype, [&](auto zero) {
        const auto* const from = static_cast<const decltype(zero)*>(bias) + i / z.a * strides.n +
                                 i % z.a * strides.a + t * strides.t + keys.begin;
        for (int64_t j = 0; j < end; ++j) {
          const auto b = static_cast<float>(from[j]);
          scores[j * at.key] += log2e * (b == none ? b : std::max(b, -1e30f));
        }
      });
    for (int64_t j = end; j < keys.count; ++j) scores[j * at.key] = none;
  }
}

// Suballocates a workspace, aligned to cache lines.
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
