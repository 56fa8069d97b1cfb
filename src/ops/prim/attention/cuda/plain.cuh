// attention and its gradient for every width, dtype and alignment, in f32 without tensor cores:
// each result is a matrix of weights, computed in tiles of 64 x 64 scores, times rows.
#pragma once

#include "ops/prim/attention/cuda/mask.cuh"

namespace ebb::ops::cuda {

enum class PlainSum : int { o, dq, dk, dv };

// shift and delta hold `pitch` floats per head, one per query; a weight is 2^(score - shift).
struct PlainParams {
  HeadSizes z;
  const void *q, *k, *v, *dout;
  void* out;
  float *lse, *shift, *factor;  // factor: 1 / row_sum
  const float* delta;
  int64_t pitch;
  int tiles;  // of 64 rows, in a head
  MaskParams mask;
  HeadStrides dout_lies, out_lies;  // of gradients; o lies as z says
};

constexpr int kPlainTile = 64;
constexpr int kPlainThreads = 256;  // 4 x 4 of a tile each

struct PlainShared {
  float a[16][kPlainTile + 4], b[16][kPlainTile + 4];
  float weight[kPlainTile][kPlainTile + 4];  // by column, then row
  float x[kPlainTile][kPlainTile + 4];
};

// to[d][row] = elements [column, column + 16) of 64 rows from `begin` on.
template <class T>
__device__ void plain_load(float (&to)[16][kPlainTile + 4], const ebb::cuda::Rows<T>& rows,
                           int begin, int column) {
  for (int i = threadIdx.x; i < 16 * kPlainTile; i += kPlainThreads) {
    const int row = begin + i / 16, d = column + i % 16;
    const bool valid = row < rows.count && d < rows.width;
    to[i % 16][i / 16] = valid ? ebb::cuda::to_float(rows.first[row * rows.row_stride + d]) : 0.f;
  }
}

__device__ __forceinline__ void plain_add(float (&c)[4][4], const float* a, const float* b) {
  const float4 x = *reinterpret_cast<const float4*>(a), y = *reinterpret_cast<const float4*>(b);
  const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) c[i][j] = fmaf(xs[i], ys[j], c[i][j]);
}

// c = this thread's 4 x 4 of a b^T, rows of a from a_begin on, rows of b from b_begin on.
template <class T>
__device__ void plain_product(float (&c)[4][4], PlainShared& s, const ebb::cuda::Rows<T>& a,
                              int a_begin, const ebb::cuda::Rows<T>& b, int b_begin) {
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  for (auto& r : c)
    for (float& v : r) v = 0;
  for (int d = 0; d < a.width; d += 16) {
    __syncthreads();  // the previous columns have been read
    plain_load(s.a, a, a_begin, d);
    plain_load(s.b, b, b_begin, d);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 16; ++i) plain_add(c, &s.a[i][row], &s.b[i][column]);
  }
}

// shift, factor and lse of 64 queries.
// grid: p.tiles blocks a head.  sums: f32.  deterministic: yes.
template <class T>
__global__ __launch_bounds__(kPlainThreads) void attention_plain_sums(
    const __grid_constant__ PlainParams p) {
  ebb::cuda::begin();
  __shared__ PlainShared shared;
  const int64_t head = blockIdx.x / p.tiles;
  const int begin = blockIdx.x % p.tiles * kPlainTile;
  const int row = begin + threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  const auto q = rows_of<T>(p.z, p.z.q, p.q, head, p.z.t),
             k = key_rows_of<T>(p.z, p.z.k, p.k, head);
  const HeadMask mask(p.z, p.mask, static_cast<int>(head));
  const int end = mask.key_limit(::min(begin + kPlainTile, p.z.t) - 1);
  float row_max[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, sum[4] = {}, c[4][4];
  const auto join = [](float& h, float& s, float other, float other_sum) {
    const float top = fmaxf(h, other);
    if (h == -INFINITY && other == -INFINITY) return;
    s = s * exp2f(h - top) + other_sum * exp2f(other - top);
    h = top;
  };
  for (int j = 0; j < end; j += kPlainTile) {
    plain_product(c, shared, q, begin, k, j);
    for (int x = 0; x < 4; ++x)
      for (int i = 0; i < 4; ++i)
        if (row + i < p.z.t && j + column + x < mask.key_limit(row + i)) {
          const float bias = mask.bias(row + i, j + column + x) * ebb::cuda::kLog2e;
          join(row_max[i], sum[i], fmaf(c[i][x], p.z.scale_log2, bias), 1);
        }
  }
  for (int i = 0; i < 4; ++i) {
    for (int offset = 1; offset < 16; offset *= 2) {
      const float other = __shfl_xor_sync(~0u, row_max[i], offset);
      join(row_max[i], sum[i], other, __shfl_xor_sync(~0u, sum[i], offset));
    }
    if (threadIdx.x % 16 != 0 || row + i >= p.z.t) continue;
    const bool masked_row = sum[i] == 0;  // fully masked
    p.shift[head * p.pitch + row + i] = masked_row ? 0 : row_max[i];
    p.factor[head * p.pitch + row + i] = masked_row ? 0 : 1 / sum[i];
    p.lse[head * p.z.t + row + i] = masked_row ? 0 : (row_max[i] + log2f(sum[i])) * ebb::cuda::kLn2;
  }
}

// Operands of each result: `row` and `column` (and row2, column2 of dp) give the scores, x is
// multiplied by the weights.
template <PlainSum Kind, class T>
struct PlainOperands {
  static constexpr bool by_key = Kind == PlainSum::dk || Kind == PlainSum::dv;
  static constexpr bool gradient = Kind == PlainSum::dq || Kind == PlainSum::dk;
  ebb::cuda::Rows<T> row, column, row2, column2, x;

  __device__ PlainOperands(const PlainParams& p, int64_t head) {
    const auto q = rows_of<T>(p.z, p.z.q, p.q, head, p.z.t),
               k = key_rows_of<T>(p.z, p.z.k, p.k, head);
    const auto v = key_rows_of<T>(p.z, p.z.v, p.v, head),
               d = rows_of<T>(p.z, p.dout_lies, p.dout, head, p.z.t);
    row = by_key ? k : q, column = by_key ? q : k;
    row2 = by_key ? v : d, column2 = by_key ? d : v;
    x = Kind == PlainSum::o ? v : Kind == PlainSum::dq ? k : Kind == PlainSum::dk ? q : d;
  }
};

// weight[column][row] from the scores c and, for gradients, dp.
template <PlainSum Kind, class T>
__device__ void plain_probabilities(const PlainParams& p, PlainShared& s, const HeadMask& mask,
                                    int64_t head, int row, int column, const float (&c)[4][4],
                                    const float (&dp)[4][4]) {
  using Operands = PlainOperands<Kind, T>;
  const int rows = Operands::by_key ? p.z.s : p.z.t, columns = Operands::by_key ? p.z.t : p.z.s;
  const int at_row = threadIdx.x / 16 * 4, at_column = threadIdx.x % 16 * 4;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      float w = 0;
      if (row + at_row + i < rows && column + at_column + j < columns) {
        const int a = row + at_row + i, b = column + at_column + j;
        const int query = Operands::by_key ? b : a, key = Operands::by_key ? a : b;
        if (key < mask.key_limit(query)) {
          const float bias = mask.bias(query, key) * ebb::cuda::kLog2e;
          w = exp2f(fmaf(c[i][j], p.z.scale_log2, bias - p.shift[head * p.pitch + query]));
        }
        if (Operands::gradient) w *= p.z.scale * (dp[i][j] - p.delta[head * p.pitch + query]);
      }
      s.weight[at_column + j][at_row + i] = w;
    }
}

// 64 rows and 64 columns of o, dq, dk or dv.
// grid: p.tiles blocks a head, one for every 64 columns.  sums: f32.  deterministic: yes.
template <PlainSum Kind, class T>
__global__ __launch_bounds__(kPlainThreads) void attention_plain(
    const __grid_constant__ PlainParams p) {
  ebb::cuda::begin();
  using Operands = PlainOperands<Kind, T>;
  __shared__ PlainShared shared;
  const int64_t head = blockIdx.x / p.tiles;
  const int begin = blockIdx.x % p.tiles * kPlainTile, first = blockIdx.y * kPlainTile;
  const int row = threadIdx.x / 16 * 4, column = threadIdx.x % 16 * 4;
  const Operands in(p, head);
  const HeadMask mask(p.z, p.mask, static_cast<int>(head));
  float sum[4][4] = {}, c[4][4], dp[4][4] = {};
  for (int j = 0; j < in.column.count; j += kPlainTile) {
    plain_product(c, shared, in.row, begin, in.column, j);
    if constexpr (Operands::gradient) plain_product(dp, shared, in.row2, begin, in.column2, j);
    __syncthreads();  // the previous weights have been read
    plain_probabilities<Kind, T>(p, shared, mask, head, begin, j, c, dp);
    for (int i = threadIdx.x; i < kPlainTile * kPlainTile; i += kPlainThreads) {
      const int r = j + i / kPlainTile, d = first + i % kPlainTile;
      const bool valid = r < in.x.count && d < p.z.width;
      shared.x[i / kPlainTile][i % kPlainTile] =
          valid ? ebb::cuda::to_float(in.x.first[r * in.x.row_stride + d]) : 0.f;
    }
    __syncthreads();
#pragma unroll 8
    for (int i = 0; i < kPlainTile; ++i)
      plain_add(sum, &shared.weight[i][row], &shared.x[i][column]);
  }
  const HeadStrides& lies = Kind == PlainSum::o ? p.z.o : p.out_lies;
  const auto out = rows_of<T>(p.z, lies, p.out, head, in.row.count);
  for (int i = 0; i < 4; ++i) {
    const int r = begin + row + i;
    if (r >= in.row.count) continue;
    const float f = Kind == PlainSum::o ? p.factor[head * p.pitch + r] : 1.f;
    for (int d = 0; d < 4; ++d)
      if (first + column + d < p.z.width)
        const_cast<T*>(out.first)[r * out.row_stride + first + column + d] =
            ebb::cuda::from_float<T>(sum[i][d] * f);
  }
}

}  // namespace ebb::ops::cuda
