// attention_grad of long heads with wgmma and TMA (sm_90a), in one pass over pairs of blocks: dk
// and dv of a block of keys stay in registers, dq is summed over the blocks of keys in device
// memory, in a fixed order. The five products of a pair: s = k q^T, dp = v do^T, dv += p do,
// dk += ds q, dq += ds^T k (s, p, dp and ds: keys by queries).
#pragma once

#include "ops/prim/attention_grad/cuda_sm90_table.cuh"

namespace ebb::ops::cuda {

// Bytes from the first 16 columns of rows in boxes of `rows` rows to the columns [16 k, 16 k + 16).
template <int D>
__device__ __forceinline__ constexpr uint32_t columns_at(int k, int rows) {
  constexpr int first = D == 80 ? 3 : 4;  // in the first box
  if (k < first) return k * 32;
  return rows * 128 + (D == 80 ? 16 : 0) + (k - first) * 32;
}

// What a warpgroup that multiplies knows. Its accumulators are 64 keys by columns of dk and dv, and
// 64 queries by columns of dq.
template <int D>
struct LongWork {
  const LongParams& p;
  unsigned char* memory;
  uint32_t at;  // address of memory
  int group;    // 0 or 1: which 64 keys
};
// A block of queries and a tile of keys: the numbers that they have in this thread block, too.
struct Open {
  int head, key_block, rank, block;
  int tiles, count;
  bool last;  // of the tile's blocks
};
template <int D>
using ScoreSums = float[LongShape<D>::queries / 8][4];
template <int D>
using Packed = uint32_t[LongShape<D>::queries / 16][4];
template <int D>
using KeySums = float[LongShape<D>::parts][LongShape<D>::width / 8][4];
template <int D>
using QuerySums = float[LongShape<D>::dq_width / 8][4];

// c = 64 rows of `a` (k or v) times the block of q or do at `b`, transposed.
template <class T, int D>
__device__ __forceinline__ void start_scores(ScoreSums<D>& c, uint32_t a, uint32_t b) {
  using S = LongShape<D>;
  fence_accumulators(c);
  wgmma_start();
#pragma unroll
  for (int k = 0; k < (D + 15) / 16; ++k)
    Wgmma<T, S::queries>::template run<0, 0>(c, swizzled_operand(a + columns_at<D>(k, S::keys), 0),
                                             swizzled_operand(b + columns_at<D>(k, S::queries), 0),
                                             k > 0);
  wgmma_submit();
}

// sum += packed weights times the block of q or do at `b`.
template <class T, int D>
__device__ __forceinline__ void start_key_sums(KeySums<D>& sum, const Packed<D>& a, uint32_t b) {
  using S = LongShape<D>;
  constexpr int next = S::queries * 128;
  fence_accumulators(sum);
  wgmma_start();
#pragma unroll
  for (int k = 0; k < S::queries / 16; ++k)
#pragma unroll
    for (int part = 0; part < S::parts; ++part)
      Wgmma<T, S::width>::template run<1>(sum[part], a[k],
                                          swizzled_operand(b + part * next + k * 2048, next), 1);
  wgmma_submit();
}

// dq of 64 queries and all keys of a tile: both warpgroups' ds.
template <class T, int D>
__device__ __forceinline__ void start_dq(QuerySums<D>& dq, const LongWork<D>& w, const Open& o) {
  using S = LongShape<D>;
  const uint32_t ds = w.at + S::ds + (o.count & 1) * S::ds_bytes +
                      (S::queries == 128 ? w.group * S::keys * 128 : 0);
  const uint32_t k =
      w.at + S::k + (o.tiles & 1) * S::key_bytes + (S::boxes == 2 ? w.group * S::keys * 128 : 0);
  fence_accumulators(dq);
  wgmma_start();
#pragma unroll
  for (int i = 0; i < S::keys / 16; ++i)
    Wgmma<T, S::dq_width>::template run<1, 1>(dq, swizzled_operand(ds + i * 2048, 0),
                                              swizzled_operand(k + i * 2048, 0), i > 0);
  wgmma_submit();
}

// Packed p from the scores.
template <class T, int D>
__device__ __forceinline__ void weigh(Packed<D>& weights, ScoreSums<D>& s, const LongWork<D>& w,
                                      const Open& o) {
  using S = LongShape<D>;
  weigh_keys(s, reinterpret_cast<const float*>(w.memory + S::shift + (o.count & 1) * S::sums_bytes),
             w.p.g.z.scale_log2, w.p.g.z.s - o.key_block * S::keys - w.group * 64);
  pack_weights<T, S::queries>(weights, s);
}

// ds into shared memory, for both warpgroups: rows are keys, boxes of 64 queries.
template <int D>
__device__ __forceinline__ void keep_ds(const LongWork<D>& w, const Packed<D>& ds, int count) {
  using S = LongShape<D>;
  const int lane = threadIdx.x % 32;
  const int key = 64 * w.group + threadIdx.x % 128 / 32 * 16 + lane % 16;
  const uint32_t row = w.at + S::ds + (count & 1) * S::ds_bytes + key * 128;
#pragma unroll
  for (int k = 0; k < S::queries / 16; ++k) {
    const int piece = (2 * k + lane / 16) % 8 ^ lane % 8;
    store_matrices(row + k / 4 * S::keys * 128 + piece * 16, ds[k]);
  }
  fence_async();
}

// Writes the whole dq of a block of queries: `sums` holds the tiles before.
template <class T, int D>
__device__ __forceinline__ void write_dq(QuerySums<D>& dq, const LongWork<D>& w, const Open& o,
                                         const float4* sums) {
  using S = LongShape<D>;
  constexpr int pieces = S::dq_width / 8;
  if (o.rank > 0) {
    float4 x[pieces];
#pragma unroll
    for (int n = 0; n < pieces; ++n) x[n] = __ldcg(sums + n * 128);
#pragma unroll
    for (int n = 0; n < pieces; ++n)
      dq[n][0] += x[n].x, dq[n][1] += x[n].y, dq[n][2] += x[n].z, dq[n][3] += x[n].w;
  }
  Rows<T> to = rows_of<T>(w.p.g.z, w.p.g.dq, o.head, w.p.g.z.t);
  const int warp = threadIdx.x % 128 / 32, column = S::boxes == 2 ? w.group * S::step : 0;
  const int row = o.block * S::queries + (S::boxes == 2 ? 0 : w.group * 64) + warp * 16;
  to.first += column, to.width -= column;
  using One = float(&)[1][pieces][4];
  write_scaled<T, 1, S::dq_width>(to, row, reinterpret_cast<One>(dq), w.p.g.z.scale,
                                  threadIdx.x % 32);
}

// Adds the tile's dq of a block of queries to that of the tiles before; the last tile writes it.
template <class T, int D>
__device__ __forceinline__ void add_dq(QuerySums<D>& dq, const LongWork<D>& w, const Open& o) {
  using S = LongShape<D>;
  const int64_t piece = (int64_t{o.head} * w.p.query_blocks + o.block) * S::groups + w.group;
  auto* const sums = reinterpret_cast<float4*>(w.p.sums + piece * S::dq_piece) + threadIdx.x % 128;
  if (o.rank + 1 == w.p.key_blocks) {
    write_dq<T, D>(dq, w, o, sums);
  } else if (o.rank == 0) {
#pragma unroll
    for (int n = 0; n < S::dq_width / 8; ++n)
      sums[n * 128] = {dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
  } else {
#pragma unroll
    for (int n = 0; n < S::dq_width / 8; ++n) add_to(sums + n * 128, dq[n]);
  }
}

// What happens to dq of a block of queries when it has been computed.
template <class T, int D>
__device__ __forceinline__ void finish_dq(QuerySums<D>& dq, const LongWork<D>& w, const Open& o) {
  fence_accumulators(dq);
  say<D>(w.at, Pair::ds_empty, o.count);
  if (o.last) say<D>(w.at, Pair::keys_empty, o.tiles);
  if (w.p.key_blocks > 1) wait_for<D>(w.at, Pair::turn, o.count);
  add_dq<T, D>(dq, w, o);
  if (w.p.key_blocks > 1) say<D>(w.at, Pair::added, o.count);
}

// Adds a block of queries to dk and dv. dk is still being computed when it ends, and dq of this
// block is left to the next call (`before` is that of the last call); the first call throws a dq
// of nothing away.
template <class T, int D>
__device__ __forceinline__ void meet_queries(const LongWork<D>& w, const Open& o,
                                             const Open& before, KeySums<D>& dk, KeySums<D>& dv) {
  using S = LongShape<D>;
  const int slot = o.count & 1;
  const uint32_t q = w.at + S::q + slot * S::query_bytes;
  const uint32_t dout = w.at + S::dout + slot * S::query_bytes;
  const uint32_t keys = w.at + (o.tiles & 1) * S::key_bytes + w.group * 8192;
  ScoreSums<D> s, dp;
  QuerySums<D> dq;
  Packed<D> weights, ds;
  wait_for<D>(w.at, Pair::q_full, o.count);
  start_scores<T, D>(s, keys + S::k, q);
  wgmma_finish<1>();  // dk of the block before
  fence_accumulators(dk);
  if (o.count > 0) say<D>(w.at, Pair::q_empty, o.count - 1);
  wait_for<D>(w.at, Pair::dout_full, o.count);
  start_scores<T, D>(dp, keys + S::v, dout);
  wgmma_finish<1>();  // s
  fence_accumulators(s);
  weigh<T, D>(weights, s, w, o);
  start_key_sums<T, D>(dv, weights, dout);
  if (o.count > 0) wait_for<D>(w.at, Pair::ds_full, o.count - 1);
  start_dq<T, D>(dq, w, before);
  wgmma_finish<2>();  // dp
  fence_accumulators(dp);
  differentiate<T>(ds, weights, dp,
                   reinterpret_cast<const float*>(w.memory + S::delta + slot * S::sums_bytes));
  wait_free<D>(w.at, Pair::ds_empty, o.count);
  keep_ds<D>(w, ds, o.count);
  say<D>(w.at, Pair::ds_full, o.count);
  start_key_sums<T, D>(dk, ds, q);
  wgmma_finish<1>();  // dv, dq
  fence_accumulators(dv);
  say<D>(w.at, Pair::dout_empty, o.count);
  if (o.count > 0) finish_dq<T, D>(dq, w, before);
}

// dk or dv of 64 keys: written, or left for the sum over the ranges of queries.
template <class T, int D>
__device__ __forceinline__ void write_keys(const LongWork<D>& w, KeySums<D>& sum, const LongTile& t,
                                           bool dv) {
  using S = LongShape<D>;
  const int thread = threadIdx.x % 128, first = t.key_block * S::keys + w.group * 64;
  if (w.p.ranges > 1) {
    const int64_t head = int64_t{t.range} * w.p.g.z.heads + t.head;
    const int64_t piece = (head * w.p.key_blocks * 2 + first / 64) * 2 + dv;
    auto* const to = reinterpret_cast<float4*>(w.p.parts + piece * S::part_piece) + thread;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const float(&x)[4] = sum[i / (S::width / 8)][i % (S::width / 8)];
      to[i * 128] = {x[0], x[1], x[2], x[3]};
    }
    return;
  }
  const Rows<T> to = rows_of<T>(w.p.g.z, dv ? w.p.g.dv : w.p.g.dk, t.head, w.p.g.z.s);
  using One = float(&)[1][D / 8][4];
  write_scaled<T, 1, D>(to, first + thread / 32 * 16, reinterpret_cast<One>(sum),
                        dv ? 1.f : w.p.g.z.scale, thread % 32);
}

// All tiles of a warpgroup that multiplies.
template <class T, int D>
__device__ __forceinline__ void multiply_tiles(const LongWork<D>& w) {
  Open before = {};
  int tiles = 0, count = 0;
#pragma unroll 1
  for (int i = blockIdx.x; i < w.p.tiles; i += gridDim.x, ++tiles) {
    const LongTile t = long_tile(w.p, i);
    KeySums<D> dk, dv;
    clear(dk);
    clear(dv);
    fence_accumulators(dk);
    fence_accumulators(dv);
    wait_for<D>(w.at, Pair::keys_full, tiles);
#pragma unroll 1
    for (int j = 0; j < t.blocks; ++j, ++count) {
      const int b = t.block(j);
      const Open o{t.head, t.key_block, t.rank(b), b, tiles, count, j + 1 == t.blocks};
      meet_queries<T, D>(w, o, before, dk, dv);
      before = o;
    }
    wgmma_finish<0>();
    fence_accumulators(dk);
    write_keys<T, D>(w, dk, t, false);
    write_keys<T, D>(w, dv, t, true);
    if (i + gridDim.x < w.p.tiles) continue;
    QuerySums<D> dq;
    wait_for<D>(w.at, Pair::ds_full, before.count);
    start_dq<T, D>(dq, w, before);
    wgmma_finish<0>();
    finish_dq<T, D>(dq, w, before);
  }
}

// What comes first: shift and delta, and no tile has had its turn. A thread block takes
// kRowTokens queries of a sample and all their heads.
// grid: heads / a * pitch / kRowTokens.  sums: f32.  deterministic: yes.
template <class T>
__global__ __launch_bounds__(kRowThreads) void attention_grad_long_rows(
    const __grid_constant__ LongParams p) {
  begin();
  constexpr int together = 4, step = kRowThreads / kRowLanes / kRowTokens;  // heads
  const HeadSizes& z = p.g.z;
  for (int64_t i = int64_t{blockIdx.x} * kRowThreads + threadIdx.x; i < p.turn_count;
       i += int64_t{gridDim.x} * kRowThreads)
    p.turns[i] = 0;
  const int64_t token = int64_t{blockIdx.x} * kRowTokens + threadIdx.x / kRowLanes % kRowTokens;
  const int n = static_cast<int>(token / p.g.pitch), t = static_cast<int>(token % p.g.pitch);
  const int lane = threadIdx.x % kRowLanes, head = threadIdx.x / kRowLanes / kRowTokens;
  const int64_t row = (int64_t{n} * z.t + t) * z.out_step + lane * 8;
  const T* const o = static_cast<const T*>(p.g.o) + row;
  const T* const dout = static_cast<const T*>(p.g.dout) + row;
  for (int a = head; a < z.a; a += step * together) {
    float sum[together] = {};
    for (int c = lane * 8; c < z.width && t < z.t; c += kRowLanes * 8) {
      Vec<T, 8> x[together], y[together];
#pragma unroll
      for (int j = 0; j < together; ++j) {
        const int at = min(a + j * step, z.a - 1) * z.width + c - lane * 8;
        x[j] = *reinterpret_cast<const Vec<T, 8>*>(o + at);
        y[j] = *reinterpret_cast<const Vec<T, 8>*>(dout + at);
      }
#pragma unroll
      for (int j = 0; j < together; ++j)
#pragma unroll
        for (int k = 0; k < 8; ++k) sum[j] = fmaf(to_float(x[j].v[k]), to_float(y[j].v[k]), sum[j]);
    }
#pragma unroll
    for (int j = 0; j < together; ++j)
      if (a + j * step < z.a) finish_row(p.g, n * z.a + a + j * step, t, sum[j]);
  }
}

// grid: at most as many thread blocks as run at once, since tiles wait for others; block i
// takes the tiles i, i + grid, ...  sums: f32, in an order that the sizes and the grid decide.
// deterministic: yes.
template <class T, int D>
__global__ __launch_bounds__(LongShape<D>::threads,
                             1) void attention_grad_long(const __grid_constant__ LongParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t at = shared_address(memory);
  if (threadIdx.x == 0) init_pairs<D>(at);
  __syncthreads();  // the barriers are there
  begin();
  const int group = warpgroup();
  if (threadIdx.x >= 128 * LongShape<D>::groups) {
    fewer_registers<LongShape<D>::few>();
    const int thread = threadIdx.x - 128 * LongShape<D>::groups;
    if (thread == 0) load_tiles<D>(p, at);
    if (thread == 32 && p.key_blocks > 1) take_turns<D>(p, at);
    if (thread == 64 && p.key_blocks > 1) pass_turns<D>(p, at, 0);
    if (thread == 96 && p.key_blocks > 1) pass_turns<D>(p, at, 1);
  } else {
    more_registers<LongShape<D>::many>();
    LongWork<D> w{.p = p, .memory = memory, .at = at, .group = group};
    multiply_tiles<T, D>(w);
  }
}

// dk and dv from the parts that the ranges of queries left.
// grid: two thread blocks a piece of 64 keys of a head.  sums: f32, in the order of the
// queries. deterministic: yes.
template <class T, int D>
__global__ __launch_bounds__(128) void attention_grad_long_sum(
    const __grid_constant__ LongParams p) {
  begin();
  using S = LongShape<D>;
  const int64_t pieces = p.g.z.heads * p.key_blocks * S::pieces, piece = blockIdx.x;
  const auto* const from = reinterpret_cast<const float4*>(p.parts) + threadIdx.x;
  float sum[1][D / 8][4];
  clear(sum);
#pragma unroll 1
  for (int r = 0; r < p.ranges; ++r)
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const float4 x = from[(r * pieces + piece) * (S::part_piece / 4) + n * 128];
      sum[0][n][0] += x.x, sum[0][n][1] += x.y, sum[0][n][2] += x.z, sum[0][n][3] += x.w;
    }
  const bool dv = piece % 2 == 1;
  const int head = static_cast<int>(piece / S::pieces / p.key_blocks);
  const int first = static_cast<int>(piece / 2 % (S::pieces / 2 * p.key_blocks)) * 64;
  write_scaled<T, 1, D>(rows_of<T>(p.g.z, dv ? p.g.dv : p.g.dk, head, p.g.z.s),
                        first + static_cast<int>(threadIdx.x) / 32 * 16, sum,
                        dv ? 1.f : p.g.z.scale, threadIdx.x % 32);
}

template <class T, int D>
LongKernel long_kernel_of_width() {
  using S = LongShape<D>;
  return {.rows = attention_grad_long_rows<T>,
          .run = attention_grad_long<T, D>,
          .sum = attention_grad_long_sum<T, D>,
          .threads = S::threads,
          .bytes = S::bytes,
          .keys = S::keys,
          .queries = S::queries,
          .block_sums = S::groups * S::dq_piece,
          .pieces = S::pieces,
          .part_piece = S::part_piece};
}
template <class T>
LongKernel long_kernel(int width) {
  if (width <= 40) return long_kernel_of_width<T, 40>();
  if (width <= 64) return long_kernel_of_width<T, 64>();
  if (width <= 80) return long_kernel_of_width<T, 80>();
  return long_kernel_of_width<T, 128>();
}

}  // namespace ebb::ops::cuda
