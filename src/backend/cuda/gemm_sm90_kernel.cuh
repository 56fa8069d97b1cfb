// The kernel behind gemm_sm90.h: a persistent, warp-specialised GEMM with a producer warpgroup and
// consumer warpgroups.
//
// A CTA computes work units: tiles of tile_m x tile_n over a range of k. One producer thread fills
// a ring of stages in shared memory by TMA. Each consumer warpgroup multiplies its rows (or
// columns) of the tile by wgmma and runs its epilogue while the next tile is being loaded or, in
// ping-pong, multiplied by the other consumer.
#pragma once

#include "backend/cuda/gemm_sm90_params.h"
#include "backend/cuda/kernel_common.cuh"
#include "backend/cuda/mbarrier.cuh"
#include "backend/cuda/wgmma.cuh"

namespace ebb::cuda::gemm {

// The constants of one kernel.
template <class T_, Form form_, class Tile_>
struct Config {
  using T = T_;
  using Params = ParamsOf<form_>;
  static constexpr Form form = form_;
  static constexpr int tile_m = Tile_::m, tile_n = Tile_::n;
  static constexpr int ctas_per_sm = Tile_::ctas_per_sm;
  static constexpr int a_mn = a_transposed(form), b_mn = b_transposed(form);
  // ping-pong: one consumer runs its epilogue while the other issues MMAs
  static constexpr bool ping_pong = Tile_::ping_pong;
  static constexpr int math_groups = ping_pong ? 2 : 1;
  // consumer warpgroups along m and n of a tile; blocks of 64 rows, and columns, of each
  static constexpr int across_m = ping_pong || tile_m == 64 ? 1 : tile_m == 192 ? 3 : 2;
  static constexpr int across_n = !ping_pong && tile_m == 64 && tile_n >= 128 ? 2 : 1;
  static constexpr int rows = tile_m / 64 / across_m, columns = tile_n / across_n;
  static constexpr int groups = across_m * across_n, math_threads = 128 * groups;
  static constexpr int consumers = groups * math_groups;
  // A producer warpgroup gives registers to the consumers; with two CTAs per SM a warp loads.
  static constexpr bool move_registers = ctas_per_sm == 1 && consumers > 1;
  static constexpr int producer = 128 * consumers;  // the first loading thread
  // warps of the producer warpgroup that compute A's row sums
  static constexpr int sum_warps = !sums_rows(form) ? 0 : move_registers ? 2 : 1;
  static constexpr int threads = producer + (move_registers ? 128 : 32 + 32 * sum_warps);
  static constexpr bool many_accumulators = rows * columns / 2 > 128;
  // in total at most the registers of 384 (or 512) threads at launch; warps with row sums need more
  // than the one that issues loads
  static constexpr bool summing = sum_warps > 0 && consumers == 2;
  static constexpr int producer_registers = many_accumulators ? 40 : summing ? 72 : 56;
  static constexpr int consumer_registers = consumers == 3      ? 152
                                            : many_accumulators ? 232
                                            : summing           ? 216
                                                                : 224;
  static constexpr int a_bytes = tile_m * 128;
  static constexpr bool b_narrow = b_mn && form <= Form::tt && narrow_rows(tile_n);
  static constexpr int b_bytes = (b_mn && !b_narrow ? (tile_n + 63) / 64 * 64 : tile_n) * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  // staging of results: 16 rows of `chunk` columns per warp, or of 32 in f32
  static constexpr int chunk = columns % 64 == 0 ? 64 : 32;
  static constexpr int buffers = Tile_::buffers;
  static constexpr int buffer_bytes = 2048;
  static constexpr int out_bytes = consumers * 4 * buffers * buffer_bytes;
  static constexpr int barrier_bytes = 256;
  static constexpr int bias_buffers = ctas_per_sm == 1 ? 2 * math_groups : 1;
  static constexpr int bias_bytes = bias_buffers * tile_n * 4;
  static constexpr int first_stage = (out_bytes + barrier_bytes + bias_bytes + 1023) / 1024 * 1024;
  static constexpr int most_stages = 12;
  static constexpr int stages_beside(int others) {
    const int fitting = (233472 / (others + 1) - 1024 - first_stage) / stage_bytes;
    return fitting < most_stages ? fitting : most_stages;
  }
  static constexpr int stages = stages_beside(ctas_per_sm - 1), one_cta_stages = stages_beside(0);
  // whether launches differ in the number of stages
  static constexpr bool flexible = ctas_per_sm > 1;
  // cluster split-K: the partials fit into the shared memory of the operands
  static constexpr bool can_cluster_split_k = form != Form::gated && form != Form::phases &&
                                              !ping_pong && tile_n % 32 == 0 &&
                                              tile_m * tile_n * 4 <= stages * stage_bytes;
  static constexpr bool loads_source =
      !a_transposed(form) && form != Form::gated && form != Form::phases;
  // rows of factors take the second bias buffer of a consumer
  static constexpr bool scales = form == Form::nt && ctas_per_sm == 1;
  // rows of residuals need registers in addition to the accumulators
  static constexpr bool adds_row_residual = loads_source && !many_accumulators;
  // a thread has the same columns of both halves, in boxes of their own
  static_assert(form != Form::gated || (across_n == 1 && columns % 64 == 0));
  static_assert(stages >= 2 && (!b_mn || across_n == 1 || columns % 64 == 0));
};

// The layout of shared memory.
template <class C>
struct SharedStorage {
  uint32_t base;
  __device__ uint32_t a(int stage) const { return base + C::first_stage + stage * C::stage_bytes; }
  __device__ uint32_t b(int stage) const { return a(stage) + C::a_bytes; }
  __device__ uint32_t out(int warp) const { return base + warp * C::buffers * C::buffer_bytes; }
  __device__ uint32_t full(int stage) const { return base + C::out_bytes + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stage) + 8 * C::most_stages; }
  // bias of the tile's columns, f32; double-buffered
  __device__ uint32_t bias(int turn) const {
    return base + C::out_bytes + C::barrier_bytes + turn % C::bias_buffers * C::tile_n * 4;
  }
};

// The consumer (math) group of a thread, and its index there.
template <class C>
__device__ int math_group() {
  return !C::ping_pong ? 0 : threadIdx.x / C::math_threads;
}
template <class C>
__device__ int math_thread() {
  return !C::ping_pong ? threadIdx.x : threadIdx.x % C::math_threads;
}

template <class C>
__device__ int stages_of(const Params& p) {
  return C::flexible ? p.stages : C::stages;
}

// A position in the ring of stages; `parity` is of the phase that is waited for.
template <class C>
struct Ring {
  int stages;
  uint32_t parity;
  int stage = 0;
  __device__ void skip(int steps) {
    stage += steps;
    parity ^= stage / C::stages % 2;
    stage %= C::stages;
  }
  __device__ void next() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Of n from 0 to 2^31 - 1.
struct Divided {
  int quotient, remainder;
};
__device__ inline Divided divide(int n, const Divisor& d) {
  const int q = d.factor == 0 ? n : static_cast<int>(__umulhi(n, d.factor) >> d.shift);
  return {q, n - q * d.by};
}

// A work unit: a tile over all of k (`partial` is -1) or one of its splits (`partial` is the index
// of its accumulators in the workspace).
struct WorkUnit {
  int m, n, batch, first, last, partial;
  int split = 0;  // index of the split
};

// The rasterisation swizzle: tiles are visited in strips `raster` tiles high, so that concurrent
// CTAs share operands in L2.
__device__ inline void set_tile(const Params& p, int tile, int rank, WorkUnit& u) {
  const Divided of_batch = divide(tile, p.tiles);
  const Divided of_raster = divide(of_batch.remainder, p.raster_tiles);
  const int top = of_raster.quotient * p.raster.by;
  const bool last = top + p.raster.by >= p.groups_m;
  const Divided at = divide(of_raster.remainder, last ? p.last_raster : p.raster);
  u.batch = of_batch.quotient;
  u.m = top + at.remainder;
  u.n = at.quotient;
  if (p.multicast == Multicast::b) u.m = u.m * 2 + rank;
  if (p.multicast == Multicast::a) u.n = u.n * 2 + rank;
}

// First the data-parallel tiles, then the split-K tiles, split by split.
__device__ inline WorkUnit work_unit_at(const Params& p, int index, int rank) {
  WorkUnit u{.m = 0, .n = 0, .batch = 0, .first = 0, .last = p.steps, .partial = -1};
  const auto take_split = [&](int split) {
    u.first = split * p.split_steps + ::min(split, p.longer_splits);
    u.last = u.first + p.split_steps + (split < p.longer_splits ? 1 : 0);
    u.split = split;
  };
  if (p.cluster_split_k) {
    take_split(rank);
  } else if (index >= p.data_parallel) {
    const Divided i = divide(index - p.data_parallel, p.rest);
    take_split(i.quotient);
    u.partial =
        (i.remainder * p.split_k + u.split) * (p.multicast == Multicast::none ? 1 : 2) + rank;
    index = p.data_parallel + i.remainder;
  }
  set_tile(p, index, rank, u);
  return u;
}

// A CTA's work units; the first is found before there is anything to wait for.
struct WorkUnits {
  WorkUnit u;
  int index, rank;
  __device__ explicit WorkUnits(const Params& p)
      : index(cluster_index()), rank(static_cast<int>(cluster_rank())) {
    u = work_unit_at(p, index, rank);
  }
  __device__ bool more(const Params& p) const { return index + cluster_count() < p.work_units; }
  __device__ bool next(const Params& p) {
    if (!more(p)) return false;
    index += cluster_count();
    u = work_unit_at(p, index, rank);
    return true;
  }
};

// ---- loading -----------------------------------------------------------------------------------

// An output pixel of the convolution, counted row by row.
struct OutputPixel {
  int n, h, w;
};
__device__ inline OutputPixel output_pixel_at(const Params& p, int index) {
  const Divided of_image = divide(index, p.out_hw), at = divide(of_image.remainder, p.out_w);
  return {of_image.quotient, at.quotient, at.remainder};
}
__device__ inline Pixel pixel_at(const Params& p, const OutputPixel& at) {
  return {.w = at.w * p.stride - p.left, .h = at.h * p.stride - p.top, .n = at.n, .s = 0, .r = 0};
}

// The destination of one operand's stage (64 values of k). `half`: with multicast this CTA loads
// the first (0) or second (1) half for both; -1: all of it for itself.
struct StageTarget {
  uint32_t to, barrier;
  int half;
  __device__ LoadTo at(uint32_t offset) const {
    return {to + offset, barrier, static_cast<uint16_t>(half < 0 ? 0 : 3)};
  }
};

// Rows [first, first + Rows) of a matrix in K-major order, at k.
template <int Rows>
__device__ void load_rows(const StageTarget& target, const CUtensorMap& map, int first, int k,
                          int z) {
  const int skip = target.half > 0 ? Rows / 2 : 0;
  load_box(target.at(skip * 128), map, k, first + skip, z);
}

// Two halves, `apart` rows apart: each CTA of a cluster of two loads one of them.
template <int Rows>
__device__ void load_two_rows(const StageTarget& target, const CUtensorMap& map, int first,
                              int apart, int k) {
  if (target.half <= 0) load_box(target.at(0), map, k, first, 0);
  if (target.half != 0) load_box(target.at(Rows / 2 * 128), map, k, first + apart, 0);
}

// The same of a matrix in MN-major order.
template <int Rows>
__device__ void load_columns(const StageTarget& target, const CUtensorMap& map, int first, int k,
                             int z) {
  const int skip = target.half > 0 ? 32 : 0;
#pragma unroll
  for (int i = 0; i < (Rows + 63) / 64; ++i)
    load_box(target.at(i * 8192 + skip * 128), map, first + i * 64, k + skip, z);
}

// The same in blocks of 32 rows.
template <int Rows>
__device__ void load_narrow(const StageTarget& target, const CUtensorMap& map, int first, int k,
                            int z) {
  const int skip = target.half > 0 ? 32 : 0;
#pragma unroll
  for (int i = 0; i < Rows / 32; ++i)
    load_box(target.at(i * 4096 + skip * 64), map, first + i * 32, k + skip, z);
}

template <class C>
__device__ void load_a(const Params& p, const StageTarget& target, const WorkUnit& u, int step) {
  const int z = u.batch * p.a_batch;
  if constexpr (C::a_mn)
    load_columns<C::tile_m>(target, p.a, u.m * C::tile_m, step * 64, z);
  else
    load_rows<C::tile_m>(target, p.a, u.m * C::tile_m, step * 64, z);
}

// The columns of wgrad: blocks of 64 channels, tap by tap; blocks past the last read zero. Steps
// are runs of 64 places.
template <class C>
struct TapColumns {
  static constexpr int count = (C::tile_n + 63) / 64;
  int channel[count];
  uint16_t r[count], s[count];
  OutputPixel at, stride;  // stride: 64 places
  __device__ TapColumns(const Params& p, const WorkUnit& u, int skip)
      : at(output_pixel_at(p, u.first * 64 + skip)), stride(output_pixel_at(p, 64)) {
    int block = u.n * count;
#pragma unroll
    for (int i = 0; i < count; ++i, ++block) {
      const Divided of_tap = divide(block, p.channel_blocks), tap = divide(of_tap.quotient, p.kw);
      const bool past = of_tap.quotient >= p.taps.by;
      channel[i] = (past ? p.channel_blocks.by : of_tap.remainder) * 64;
      r[i] = static_cast<uint16_t>(past ? 0 : tap.quotient);
      s[i] = static_cast<uint16_t>(past ? 0 : tap.remainder);
    }
  }
  __device__ void load(const Params& p, const StageTarget& target, int skip) const {
    Pixel x = pixel_at(p, at);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      x.r = r[i];
      x.s = s[i];
      load_pixels(target.at(i * 8192 + skip * 128), p.b, channel[i], x);
    }
  }
  __device__ void next(const Params& p) {
    at.w += stride.w;
    at.h += stride.h;
    at.n += stride.n;
    if (at.w >= p.out_w.by) at.w -= p.out_w.by, ++at.h;
    if (at.h >= p.out_h) at.h -= p.out_h, ++at.n;
  }
};

// Step `i` of a convolution is block i / taps of channels under tap i % taps: pixels come from
// memory once in `taps` steps, spread over the GEMM, and stay in the cache until the last tap.
template <class C>
struct Taps {
  Pixel at;
  int tap, block;
  __device__ Taps(const Params& p, const WorkUnit& u, int skip)
      : at(pixel_at(p, output_pixel_at(p, u.m * C::tile_m + skip))) {
    const Divided first = divide(u.first, p.taps), in_filter = divide(first.remainder, p.kw);
    block = first.quotient;
    tap = first.remainder;
    at.r = static_cast<uint16_t>(in_filter.quotient);
    at.s = static_cast<uint16_t>(in_filter.remainder);
  }
  __device__ void next(const Params& p) {
    ++tap;
    if (++at.s < p.kw.by) return;
    at.s = 0;
    ++at.r;
    if (tap < p.taps.by) return;
    at.r = 0;
    tap = 0;
    ++block;
  }
};

// Form::phases: the row and column phase of a work unit, and its taps in the whole filter.
struct Phase {
  int row, column;
  int first_tap, tap_rows, tap_columns;  // tap (r, s) of the phase: first_tap less r and s of them
  uint16_t down, right;                  // offsets of the pixel under the phase's first tap
  __device__ Phase(const Params& p, int index) {
    const Divided of_up = divide(index, p.up);
    row = of_up.quotient;
    column = of_up.remainder;
    const Divided top = divide(row + p.up_top, p.up), left = divide(column + p.up_left, p.up);
    const int kw = p.kw.by * p.up.by, kh = p.taps.by * p.up.by / p.kw.by;
    tap_columns = p.up.by;
    tap_rows = p.up.by * kw;
    first_tap = (kh - p.up.by + top.remainder) * kw + kw - p.up.by + left.remainder;
    down = static_cast<uint16_t>(top.quotient);
    right = static_cast<uint16_t>(left.quotient);
  }
};

// Row `m` of a phase as a row of the whole result.
__device__ inline int64_t phase_row(const Params& p, const Phase& phase, int m) {
  const OutputPixel at = output_pixel_at(p, m);
  const int64_t line = (int64_t{at.n} * p.out_h + at.h) * p.up.by + phase.row;
  return line * p.out_w.by * p.up.by + at.w * p.up.by + phase.column;
}

// One unit of a convolution of images: fprop, dgrad or phases.
template <class C>
__device__ void produce_images(const typename C::Params& p, const SharedStorage<C>& s,
                               const WorkUnit& u, Ring<C>& ring, int a_half, int b_half) {
  const int skip = a_half > 0 ? C::tile_m / 2 : 0;
  Taps<C> t(p, u, skip);
  const Phase phase(p, C::form == Form::phases ? u.batch : 0);
  for (int step = u.first; step < u.last; ++step, t.next(p), ring.next()) {
    barrier_wait(s.empty(ring.stage), ring.parity);
    barrier_expect(s.full(ring.stage), C::stage_bytes);
    const StageTarget a{s.a(ring.stage), s.full(ring.stage), a_half};
    const StageTarget b{s.b(ring.stage), s.full(ring.stage), b_half};
    if constexpr (C::form == Form::fprop) {
      if (step >= p.more[0].first) {
        const FpropParams::Pair& more = p.more[step >= p.more[1].first ? 1 : 0];
        load_rows<C::tile_m>(a, more.a, u.m * C::tile_m, (step - more.first) * 64, 0);
        load_rows<C::tile_n>(b, more.b, u.n * C::tile_n, (step - more.first) * 64, 0);
        continue;
      }
    }
    Pixel pixel = t.at;
    int tap = C::form == Form::dgrad ? p.taps.by - 1 - t.tap : t.tap;
    if constexpr (C::form == Form::phases) {
      tap = phase.first_tap - pixel.r * phase.tap_rows - pixel.s * phase.tap_columns;
      pixel.r += phase.down;
      pixel.s += phase.right;
    }
    load_pixels(a.at(skip * 128), p.a, t.block * 64, pixel);
    if constexpr (C::b_mn)
      load_columns<C::tile_n>(b, p.b, u.n * C::tile_n, t.block * 64, tap);
    else
      load_rows<C::tile_n>(b, p.b, u.n * C::tile_n, t.block * 64, tap);
  }
}

template <class C>
__device__ void produce_matrices(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                                 Ring<C>& ring, int a_half, int b_half) {
  for (int step = u.first; step < u.last; ++step, ring.next()) {
    barrier_wait(s.empty(ring.stage), ring.parity);
    barrier_expect(s.full(ring.stage), C::stage_bytes);
    load_a<C>(p, {s.a(ring.stage), s.full(ring.stage), a_half}, u, step);
    const StageTarget b{s.b(ring.stage), s.full(ring.stage), b_half};
    const int z = u.batch * p.b_batch;
    if constexpr (C::form == Form::gated)
      load_two_rows<C::tile_n>(b, p.b, u.n * (C::tile_n / 2), p.half, step * 64);
    else if constexpr (C::b_narrow)
      load_narrow<C::tile_n>(b, p.b, u.n * C::tile_n, step * 64, z);
    else if constexpr (C::b_mn)
      load_columns<C::tile_n>(b, p.b, u.n * C::tile_n, step * 64, z);
    else
      load_rows<C::tile_n>(b, p.b, u.n * C::tile_n, step * 64, z);
  }
}

// One unit of wgrad.
template <class C>
__device__ void produce_taps(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                             Ring<C>& ring, int a_half, int b_half) {
  const int skip = b_half > 0 ? 32 : 0;
  TapColumns<C> columns(p, u, skip);
  for (int step = u.first; step < u.last; ++step, ring.next()) {
    barrier_wait(s.empty(ring.stage), ring.parity);
    barrier_expect(s.full(ring.stage), C::stage_bytes);
    load_a<C>(p, {s.a(ring.stage), s.full(ring.stage), a_half}, u, step);
    columns.load(p, {s.b(ring.stage), s.full(ring.stage), b_half}, skip);
    columns.next(p);
  }
}

// The producer thread.
template <class C>
__device__ void produce(const typename C::Params& p, const SharedStorage<C>& s,
                        WorkUnits work_units) {
  const int rank = work_units.rank;
  const int a_half = p.multicast == Multicast::a ? rank : -1,
            b_half = p.multicast == Multicast::b ? rank : -1;
  Ring<C> ring{.stages = stages_of<C>(p), .parity = 1};  // the first cycle does not wait
  do {
    if constexpr (a_images(C::form))
      produce_images<C>(p, s, work_units.u, ring, a_half, b_half);
    else if constexpr (b_images(C::form))
      produce_taps<C>(p, s, work_units.u, ring, a_half, b_half);
    else
      produce_matrices<C>(p, s, work_units.u, ring, a_half, b_half);
  } while (work_units.next(p));
  let_next_start();  // starting takes a microsecond, as storing does
}

}  // namespace ebb::cuda::gemm
