// The producer: fills the pipeline by TMA. See config.cuh.
#pragma once

#include "backend/cuda/gemm/sm90/config.cuh"
#include "backend/cuda/gemm/sm90/scheduler.cuh"

namespace ebb::cuda::gemm {

// An output pixel of the convolution, counted row by row.
struct OutputPixel {
  int n, h, w;
};
__device__ inline OutputPixel output_pixel_at(const Params& p, int index) {
  const Divided of_image = p.out_hw.divide(index), at = p.out_w.divide(of_image.remainder);
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

// Block `block` of 64 values of k of matrix z, as the first operand.
template <class C>
__device__ void load_a(const CUtensorMap& map, const StageTarget& target, const WorkUnit& u,
                       int block, int z) {
  if constexpr (C::a_mn)
    load_columns<C::tile_m>(target, map, u.m * C::tile_m, block * 64, z);
  else
    load_rows<C::tile_m>(target, map, u.m * C::tile_m, block * 64, z);
}

// The same as the second operand of a product of two matrices.
template <class C>
__device__ void load_b(const Params& p, const CUtensorMap& map, const StageTarget& target,
                       const WorkUnit& u, int block, int z) {
  if constexpr (C::form == Form::gated)
    load_two_rows<C::tile_n>(target, map, u.n * (C::tile_n / 2), p.half, block * 64);
  else if constexpr (C::b_narrow)
    load_narrow<C::tile_n>(target, map, u.n * C::tile_n, block * 64, z);
  else if constexpr (C::b_mn)
    load_columns<C::tile_n>(target, map, u.n * C::tile_n, block * 64, z);
  else
    load_rows<C::tile_n>(target, map, u.n * C::tile_n, block * 64, z);
}

// Loads the step if it is one of a further product.
template <class C>
__device__ bool load_further_product(const typename C::Params& p, const StageTarget& a,
                                     const StageTarget& b, const WorkUnit& u, int step) {
  if constexpr (C::sums) {
    if (step >= p.more[0].first) {
      const SumParams::Pair& more = p.more[step >= p.more[1].first ? 1 : 0];
      load_a<C>(more.a, a, u, step - more.first, 0);
      load_b<C>(p, more.b, b, u, step - more.first, 0);
      return true;
    }
  }
  return false;
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
      const Divided of_tap = p.channel_blocks.divide(block), tap = p.kw.divide(of_tap.quotient);
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
    const Divided first = p.taps.divide(u.first), in_filter = p.kw.divide(first.remainder);
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
    const Divided of_up = p.up.divide(index);
    row = of_up.quotient;
    column = of_up.remainder;
    const Divided top = p.up.divide(row + p.up_top), left = p.up.divide(column + p.up_left);
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

// Waits until the stage is empty. Returns its full barrier, which waits for the stage's bytes.
// `state` is a phase ahead, which saves an instruction: the phase of the empty barriers.
template <class C>
__device__ uint32_t acquire(const SharedStorage<C>& s, const State& state) {
  barrier_wait(s.empty(state.index), state.phase);
  const uint32_t full = s.full(state.index);
  barrier_expect(full, C::stage_bytes);
  return full;
}

// One unit of a convolution of images: fprop, dgrad or phases.
template <class C>
__device__ void produce_images(const typename C::Params& p, const SharedStorage<C>& s,
                               const WorkUnit& u, State& state, int a_half, int b_half) {
  const int skip = a_half > 0 ? C::tile_m / 2 : 0;
  Taps<C> t(p, u, skip);
  const Phase phase(p, C::form == Form::phases ? u.batch : 0);
  for (int step = u.first; step < u.last; ++step, t.next(p), state.advance()) {
    const uint32_t full = acquire(s, state);
    const StageTarget a{s.a(state.index), full, a_half};
    const StageTarget b{s.b(state.index), full, b_half};
    if (load_further_product<C>(p, a, b, u, step)) continue;
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
__device__ void produce_matrices(const typename C::Params& p, const SharedStorage<C>& s,
                                 const WorkUnit& u, State& state, int a_half, int b_half) {
  for (int step = u.first; step < u.last; ++step, state.advance()) {
    const uint32_t full = acquire(s, state);
    const StageTarget a{s.a(state.index), full, a_half};
    if (load_further_product<C>(p, a, {s.b(state.index), full, b_half}, u, step)) continue;
    load_a<C>(p.a, a, u, step, u.batch * p.a_batch);
    load_b<C>(p, p.b, {s.b(state.index), full, b_half}, u, step, u.batch * p.b_batch);
  }
}

// One unit of wgrad.
template <class C>
__device__ void produce_taps(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                             State& state, int a_half, int b_half) {
  const int skip = b_half > 0 ? 32 : 0;
  TapColumns<C> columns(p, u, skip);
  for (int step = u.first; step < u.last; ++step, state.advance()) {
    const uint32_t full = acquire(s, state);
    load_a<C>(p.a, {s.a(state.index), full, a_half}, u, step, u.batch * p.a_batch);
    columns.load(p, {s.b(state.index), full, b_half}, skip);
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
  State state{.stages = stages_of<C>(p), .phase = 1};
  do {
    if constexpr (a_images(C::form))
      produce_images<C>(p, s, work_units.u, state, a_half, b_half);
    else if constexpr (b_images(C::form))
      produce_taps<C>(p, s, work_units.u, state, a_half, b_half);
    else
      produce_matrices<C>(p, s, work_units.u, state, a_half, b_half);
  } while (work_units.next(p));
  let_next_start();  // starting takes a microsecond, as storing does
}

}  // namespace ebb::cuda::gemm
