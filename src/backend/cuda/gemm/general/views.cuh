// Views: the memory layout of GEMM operands. A view is a matrix of `outers` x `inners` elements,
// of which `inners` are contiguous in memory; either of the two is the reduction index k.
// An operand is a plain matrix, the windows of images (im2col), or rotated weights.
//
// of(z) gives the view of member z of the batch. outer(i) and inner(j) decode an index; next(x, by)
// advances it, mostly without a division. at(outer, inner, offset) combines both:
// false where the matrix has a zero or ends. out_row(m) is the row of the result of row m of
// operand a.
#pragma once

#include <cstdint>

#include "backend/cuda/kit/prologue.cuh"
#include "base/fast_div.h"

namespace ebb::cuda {

// outers x inners elements, row-major; a batch of them, or one that all of the batch shares.
struct Plain {
  int outers = 0, inners = 0;
  int64_t step = 0;      // elements from one matrix of the batch to the next
  int64_t out_rows = 0;  // of the result, for one of the batch
  int64_t base = 0, out_base = 0;

  struct Outer {
    int64_t offset;
    int index;
  };
  struct Inner {
    int index;
  };
  __device__ __forceinline__ Plain of(int z) const {
    Plain v = *this;
    v.base = z * step;
    v.out_base = z * out_rows;
    return v;
  }
  __device__ __forceinline__ Outer outer(int i) const {
    return {base + static_cast<int64_t>(i) * inners, i};
  }
  __device__ __forceinline__ Inner inner(int j) const { return {j}; }
  __device__ __forceinline__ void next(Outer& o, int by) const {
    o.index += by;
    o.offset += static_cast<int64_t>(by) * inners;
  }
  __device__ __forceinline__ void next(Inner& i, int by) const { i.index += by; }
  __device__ __forceinline__ bool at(const Outer& o, const Inner& i, int64_t& offset) const {
    offset = o.offset + i.index;
    return o.index < outers && i.index < inners;
  }
  __device__ __forceinline__ int64_t out_row(int m) const { return out_base + m; }
};

// The windows of images [N,H,W,C]: outer is a place (n, p, q), inner an element (i, j, c) of its
// window: x[n, p * stride + first_row + i * turn, q * stride + first_col + j * turn, c].
struct Windows {
  int outers = 0, inners = 0;
  int h = 0, w = 0, c = 0;
  int stride = 1, first_row = 0, first_col = 0, turn = 1;
  int end_row = 0;       // first_row and the rows of all places
  FastDiv places, cols;  // of an image, of a row of places
  FastDiv channels, window_cols;

  static constexpr int outside = -(1 << 29);  // also when two of them are added
  struct Outer {
    int64_t offset;
    int row, col, index;
  };
  struct Inner {
    int64_t offset;
    int row, col, channel, index;
  };
  __device__ __forceinline__ Windows of(int) const { return *this; }
  __device__ __forceinline__ Outer outer(int index) const {
    const auto [n, place] = places.divide(index);
    const auto [p, q] = cols.divide(place);
    const int row = p * stride + first_row, col = q * stride + first_col;
    const int64_t offset = ((static_cast<int64_t>(n) * h + row) * w + col) * c;
    return {offset, index < outers ? row : outside, col, index};
  }
  __device__ __forceinline__ Inner inner(int index) const {
    const auto [tap, channel] = channels.divide(index);
    const auto [i, j] = window_cols.divide(tap);
    const int row = i * turn, col = j * turn;
    const int64_t offset = (static_cast<int64_t>(row) * w + col) * c + channel;
    return {offset, index < inners ? row : outside, col, channel, index};
  }
  __device__ __forceinline__ void next(Outer& o, int by) const {
    const int row_of_places = cols.by * stride;
    o.index += by;
    o.col += by * stride;
    o.offset += static_cast<int64_t>(by * stride) * c;
    if (o.col < first_col + row_of_places) return;
    o.col -= row_of_places;
    o.row += stride;
    o.offset += static_cast<int64_t>(w * stride - row_of_places) * c;
    if (o.col >= first_col + row_of_places || o.row >= end_row) o = outer(o.index);
  }
  __device__ __forceinline__ void next(Inner& i, int by) const {
    i.index += by;
    i.channel += by;
    i.offset += by;
    if (i.channel >= c) i = inner(i.index);
  }
  __device__ __forceinline__ bool at(const Outer& o, const Inner& i, int64_t& offset) const {
    offset = o.offset + i.offset;
    const auto row = static_cast<unsigned>(o.row + i.row);
    const auto col = static_cast<unsigned>(o.col + i.col);
    return row < static_cast<unsigned>(h) && col < static_cast<unsigned>(w);
  }
  __device__ __forceinline__ int64_t out_row(int m) const { return m; }
};

// ---- the gradient of images ------------------------------------------------------------------
//
// dx[h, w] takes part in the windows p = (h + top - r) / stride for the taps r where that is whole:
// those with r % stride = (h + top) % stride. So the pixels fall into stride^2 phases, and each
// phase is a plain convolution of dy with its own subset of the taps, rotated by 180 degrees.

// One axis of one phase.
struct PhaseAxis {
  int first = 0;   // pixel of the first place; the next is a stride further
  int places = 0;  // pixels
  int tap = 0;     // the first tap; the next is a stride further
  int taps = 0;
  int window = 0;  // of dy, for the first place and the first tap

  // `phase` of `stride`, for an axis of `size` pixels, `kernel` taps and `before` rows of padding.
  __host__ __device__ PhaseAxis(int phase, int stride, int size, int kernel, int before)
      : first(phase),
        places(phase < size ? (size - phase + stride - 1) / stride : 0),
        tap((phase + before) % stride),
        taps(tap < kernel ? (kernel - tap + stride - 1) / stride : 0),
        window((phase + before - tap) / stride) {}
};

// The forward convolution's geometry, for both operands.
struct PhaseGrid {
  int stride = 1, top = 0, left = 0;
  int h = 0, w = 0, kh = 0, kw = 0;

  __host__ __device__ PhaseAxis rows(int z) const {
    return PhaseAxis(z / stride, stride, h, kh, top);
  }
  __host__ __device__ PhaseAxis cols(int z) const {
    return PhaseAxis(z % stride, stride, w, kw, left);
  }
};

// Windows of dy [N,P,Q,O] for the pixels of one phase.
struct PhaseWindows : Windows {
  int stride_out = 1, h_out = 0, w_out = 0, first_h = 0, first_w = 0;

  __device__ __forceinline__ int64_t out_row(int m) const {
    const auto [n, place] = places.divide(m);
    const auto [i, j] = cols.divide(place);
    const int64_t row = first_h + static_cast<int64_t>(i) * stride_out;
    return (static_cast<int64_t>(n) * h_out + row) * w_out + first_w + j * stride_out;
  }
};

// The windows of dy for all phases; z is the phase.
struct DxWindows {
  Windows dy;  // the sizes of dy and `turn`
  PhaseGrid grid;
  int images = 0;
  PhaseWindows first;  // phase(0): at stride 1 there is no other

  __device__ __forceinline__ PhaseWindows of(int z) const {
    return grid.stride == 1 ? first : phase(z);
  }
  __host__ __device__ PhaseWindows phase(int z) const {
    const PhaseAxis rows = grid.rows(z), cols = grid.cols(z);
    PhaseWindows v;
    static_cast<Windows&>(v) = dy;
    v.outers = images * rows.places * cols.places;
    v.inners = rows.taps * cols.taps * dy.c;
    v.first_row = rows.window;
    v.first_col = cols.window;
    v.end_row = rows.window + rows.places;
    const auto positive = [](int x) { return x > 0 ? x : 1; };
    v.places = FastDiv(positive(rows.places * cols.places));
    v.cols = FastDiv(positive(cols.places));
    v.window_cols = FastDiv(positive(cols.taps));
    v.stride_out = grid.stride;
    v.h_out = grid.h;
    v.w_out = grid.w;
    v.first_h = rows.first;
    v.first_w = cols.first;
    return v;
  }
};

// The weights [O,KH,KW,C] as rows (i, j, o) of C elements, for the taps of one phase.
struct PhaseTaps {
  int outers = 0, inners = 0;
  int stride = 1, tap_row = 0, tap_col = 0, kw = 0;
  int64_t filter_size = 0;  // KH * KW * C
  FastDiv filters, window_cols;

  struct Outer {
    int64_t offset;
    int filter, index;
  };
  using Inner = Plain::Inner;
  __device__ __forceinline__ Outer outer(int index) const {
    const auto [tap, o] = filters.divide(index);
    const auto [i, j] = window_cols.divide(tap);
    const int r = tap_row + i * stride, s = tap_col + j * stride;
    return {o * filter_size + (static_cast<int64_t>(r) * kw + s) * inners, o, index};
  }
  __device__ __forceinline__ Inner inner(int j) const { return {j}; }
  __device__ __forceinline__ void next(Outer& o, int by) const {
    o.index += by;
    o.filter += by;
    o.offset += by * filter_size;
    if (o.filter >= filters.by) o = outer(o.index);
  }
  __device__ __forceinline__ void next(Inner& i, int by) const { i.index += by; }
  __device__ __forceinline__ bool at(const Outer& o, const Inner& i, int64_t& offset) const {
    offset = o.offset + i.index;
    return o.index < outers && i.index < inners;
  }
};

// The same for all phases.
struct DxTaps {
  PhaseTaps w;  // the sizes
  PhaseGrid grid;
  PhaseTaps first;  // phase(0)

  __device__ __forceinline__ PhaseTaps of(int z) const {
    return grid.stride == 1 ? first : phase(z);
  }
  __host__ __device__ PhaseTaps phase(int z) const {
    const PhaseAxis rows = grid.rows(z), cols = grid.cols(z);
    PhaseTaps v = w;
    v.outers = rows.taps * cols.taps * w.filters.by;
    v.tap_row = rows.tap;
    v.tap_col = cols.tap;
    v.window_cols = FastDiv(cols.taps > 0 ? cols.taps : 1);
    return v;
  }
};

}  // namespace ebb::cuda
