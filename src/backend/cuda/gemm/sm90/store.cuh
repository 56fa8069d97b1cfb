// Stores the accumulators of a tile: by boxes of 16 rows through shared memory, where a residual
// is added and activations are applied; or element by element.
#pragma once

#include "backend/cuda/gemm/sm90/epilogue.cuh"
#include "backend/cuda/kit/activation.cuh"
#include "backend/cuda/kit/pairs.cuh"

namespace ebb::cuda::gemm {

__device__ inline void load_vector(uint32_t from, uint32_t (&v)[4]) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(from)
               : "memory");
}

// A subtile of pre-activations is replaced by the activation's gradients there.
template <class C>
__device__ void take_activation_grads(const Params& p, uint32_t box) {
#pragma unroll 1                                                         // few registers are left
  for (int q = threadIdx.x % 32; q < Subtiles<C>::row_bytes; q += 32) {  // chunks of 16 lines
    uint32_t v[4];
    load_vector(box + q * 16, v);
    activate_vector<typename C::T, true>(p.activation, v);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(box + q * 16), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
  }
}

// How the source subtile enters the result: not at all, added or multiplied.
enum class With { nothing, sum, product };

// 16 rows of `width` columns, with accumulators d[0..], into shared memory in the boxes' swizzle.
template <class C, With with, int width = C::chunk>
__device__ void stage_chunk(const float* d, uint32_t to) {
  using T = typename C::T;
  const int lane = threadIdx.x % 32, row = lane % 16;
#pragma unroll
  for (int j = 0; j < width / 16; ++j) {
    const uint32_t at = to + swizzled<width * 2>(row, 2 * j + lane / 16);
    uint32_t v[4] = {};
    if constexpr (with != With::nothing) load_matrices<false>(v, at);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* x = d + 2 * j * 4 + k * 2;
      const float2 y = unpack<T>(v[k]);
      if constexpr (with == With::nothing)
        v[k] = pack<T>(x[0], x[1]);
      else if constexpr (with == With::sum)
        v[k] = pack<T>(x[0] + y.x, x[1] + y.y);
      else
        v[k] = pack<T>(x[0] * y.x, x[1] * y.y);
    }
    store_matrices(at, v);
  }
}

// The same in f32, 32 columns.
template <class C>
__device__ void stage_floats(const float* d, uint32_t to) {
  const int lane = threadIdx.x % 32, row = lane / 4;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint32_t at = to + row * 128 + ((2 * j + lane % 4 / 2) ^ row) * 16 + lane % 2 * 8;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at + h * 1024), "f"(d[j * 4 + h * 2]),
                   "f"(d[j * 4 + h * 2 + 1])
                   : "memory");
    }
  }
}

// Where a box at a row and column, counted as tiles count, goes: its first element, from row to
// row, and how many rows and columns of the result there are from there on.
template <class C>
struct SubtileAt {
  int64_t first, pitch;
  int rows, columns;
  __device__ SubtileAt(const Params& p, const WorkUnit& u, int row, int column) {
    if (u.partial >= 0) {
      pitch = C::tile_n;
      first = (int64_t{u.partial - u.m} * C::tile_m + row) * pitch + column - u.n * C::tile_n;
      rows = C::tile_m;
      columns = C::tile_n;
      return;
    }
    pitch = p.n;
    rows = p.m - row;
    columns = p.n - column;
    if constexpr (C::form == Form::wgrad) {
      const Divided tap = p.channel_blocks.divide(column / 64);
      const int channel = tap.remainder * 64 + column % 64;
      columns = tap.quotient < p.taps.by ? p.channels - channel : 0;
      column = tap.quotient * p.channels + channel;
    }
    first = u.batch * p.out_matrix + row * pitch + column;
  }
};

__device__ inline void store_vector(void* to, const uint32_t (&v)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v[0]), "r"(v[1]),
               "r"(v[2]), "r"(v[3])
               : "memory");
}

// A staged box to memory, in vectors of 16 bytes. (TMA stores queue behind the loads of
// the next tiles: GEMMs of few steps took up to a tenth longer.)
template <class C, bool floats>
__device__ void send_subtile(const Params& p, const WorkUnit& u, uint32_t from, int row,
                             int column) {
  constexpr int size = floats ? 4 : 2, width = floats ? 32 : C::chunk;
  constexpr int row_bytes = width * size, vectors = row_bytes / 16;
  asm volatile("" : "+r"(row));  // registers are few: one box's addresses at a time
  const SubtileAt<C> at(p, u, row, column);
  // a thread has the same vector of every few lines
  const int lane = threadIdx.x % 32, vector = lane % vectors;
  constexpr int lines = 32 / vectors;
  char* to = (u.partial >= 0 ? reinterpret_cast<char*>(p.partials) : static_cast<char*>(p.out)) +
             (at.first + lane / vectors * at.pitch) * size + vector * 16;
  const int64_t next = lines * at.pitch * size;
  const int rows = vector * (16 / size) < at.columns ? at.rows : 0;
#pragma unroll
  for (int i = 0; i < 16 / lines; ++i, to += next) {
    const int line = i * lines + lane / vectors;
    if constexpr (C::form == Form::phases)
      to = static_cast<char*>(p.out) +
           (phase_row(p, Phase(p, u.batch), row + line) * p.n + column) * size + vector * 16;
    const int turn = row_bytes == 128 ? line % 8 : line / 2 % 4;  // the swizzle of the box
    uint32_t v[4];
    load_vector(from + line * row_bytes + (vector ^ turn) * 16, v);
    if (line < rows) store_vector(to, v);
  }
}

// The same for a box of accumulators z: its activation, and z itself if it is a result.
template <class C>
__device__ void send_activated(const Params& p, const WorkUnit& u, uint32_t from, int row,
                               int column) {
  using B = Subtiles<C>;
  constexpr int vectors = B::row_bytes / 16, lines = 32 / vectors;
  const int lane = threadIdx.x % 32, vector = lane % vectors;
  const SubtileAt<C> at(p, u, row, column);
  int64_t to = (at.first + lane / vectors * at.pitch) * 2 + vector * 16;
  const int64_t next = lines * at.pitch * 2;
  const int rows = vector * 8 < at.columns ? at.rows : 0;
#pragma unroll 1  // few registers are left
  for (int line = lane / vectors; line < 16; line += lines, to += next) {
    uint32_t v[4];
    load_vector(from + swizzled<B::row_bytes>(line, vector), v);
    if (line < rows && p.kept != nullptr) store_vector(static_cast<char*>(p.kept) + to, v);
    activate_vector<typename C::T, false>(p.activation, v);
    if (line < rows) store_vector(static_cast<char*>(p.out) + to, v);
  }
}

// Boxes of accumulators, the same columns of both halves: one times the activation of the other,
// and both themselves if they are results. `column`: of the result.
template <class C, int width>
__device__ void send_gated(const Params& p, uint2 boxes, int row, int column) {
  constexpr int row_bytes = width * 2, vectors = row_bytes / 16, lines = 32 / vectors;
  const int lane = threadIdx.x % 32, vector = lane % vectors;
  const uint32_t gates = p.gate_first ? boxes.x : boxes.y, others = boxes.x + boxes.y - gates;
  const int gate_at = p.gate_first ? 0 : p.half, other_at = p.half - gate_at;
  column += vector * 8;
  const int rows = column < p.half ? p.m - row : 0;
  constexpr int at_once = C::many_accumulators ? 1 : 2;  // as registers are left
#pragma unroll 1
  for (int top = lane / vectors; top < 16; top += lines * at_once) {
    uint32_t gate[at_once][4], v[at_once][4];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int line = top + i * lines, at = swizzled<row_bytes>(line, vector);
      load_vector(gates + at, gate[i]);
      load_vector(others + at, v[i]);
      if (line >= rows || p.kept == nullptr) continue;
      auto* to = static_cast<typename C::T*>(p.kept) + int64_t{row + line} * p.n + column;
      store_vector(to + gate_at, gate[i]);
      store_vector(to + other_at, v[i]);
    }
    gate_vectors<typename C::T>(p.activation, gate, v);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int line = top + i * lines;
      auto* to = static_cast<typename C::T*>(p.out) + int64_t{row + line} * p.half + column;
      if (line < rows) store_vector(to, v[i]);
    }
  }
}

template <class C>
constexpr bool activates = C::form == Form::nt || C::form == Form::nn;

template <class C, bool floats>
__device__ void store_subtiles(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                               const Accumulators<C>& d) {
  constexpr int width = floats ? 32 : C::chunk, boxes = C::columns / width;
  const Spot<C> at(u);
  const uint32_t out = s.out(threadIdx.x / 32);
#pragma unroll
  for (int i = 0; i < C::rows; ++i)
#pragma unroll
    for (int c = 0; c < boxes; ++c) {
      const uint32_t buffer = out + (i * boxes + c) % C::buffers * C::buffer_bytes;
      if (C::buffers == 1) __syncwarp();  // the box before has been read
      if constexpr (floats)
        stage_floats<C>(d[i] + c * width / 2, buffer);
      else
        stage_chunk<C, With::nothing>(d[i] + c * width / 2, buffer);
      __syncwarp();  // all lanes have written
      if (!floats && activates<C> && p.post == Post::activate)
        send_activated<C>(p, u, buffer, at.row + i * 64, at.column + c * width);
      else
        send_subtile<C, floats>(p, u, buffer, at.row + i * 64, at.column + c * width);
    }
}

// The same of both halves of the columns: half as many results.
template <class C>
__device__ void store_gated(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                            const Accumulators<C>& d) {
  constexpr int half = C::columns / 2, width = C::buffers > 1 && half % 64 == 0 ? 64 : 32;
  const Spot<C> at(u);
  const uint32_t out = s.out(threadIdx.x / 32);
  const uint2 boxes{out, out + width * 32};
#pragma unroll
  for (int i = 0; i < C::rows; ++i)
#pragma unroll
    for (int c = 0; c < half; c += width) {
      __syncwarp();  // the boxes before have been read
      stage_chunk<C, With::nothing, width>(d[i] + c / 2, boxes.x);
      stage_chunk<C, With::nothing, width>(d[i] + (half + c) / 2, boxes.y);
      __syncwarp();  // all lanes have written
      send_gated<C, width>(p, boxes, at.row + i * 64, u.n * half + c);
    }
}

// The same with the source, whose first loads have been issued.
template <class C>
__device__ void store_with_source(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                                  const Accumulators<C>& d) {
  using B = Subtiles<C>;
  const Spot<C> at(u);
  const uint32_t out = s.out(threadIdx.x / 32);
#pragma unroll
  for (int k = 0; k < B::count; ++k) {
    if (C::buffers > 1 && k + 1 < B::count)
      wait_copies<1>();  // of the next box
    else
      wait_copies<0>();
    __syncwarp();  // the box is there
    const int i = k / B::across, c = k % B::across * C::chunk;
    const uint32_t buffer = out + k % C::buffers * C::buffer_bytes;
    if (activates<C> && p.post == Post::activation_grad) {
      take_activation_grads<C>(p, buffer);
      __syncwarp();  // all lanes have written
      stage_chunk<C, With::product>(d[i] + c / 2, buffer);
    } else {
      stage_chunk<C, With::sum>(d[i] + c / 2, buffer);
    }
    __syncwarp();  // all lanes have written
    send_subtile<C, false>(p, u, buffer, at.row + i * 64, at.column + c);
    if (k + C::buffers >= B::count) continue;
    __syncwarp();  // the box has been read
    load_source<C>(p, u, k + C::buffers, buffer);
  }
}

// Runs through the columns that a thread stores, in eights. The columns of wgrad are taps of blocks
// of 64 channels, of which the last may be shorter.
template <class C>
struct Columns {
  int column, end;  // the thread's pair; the end of the row, or of the block
  int tap, block;
  __device__ Columns(const Params& p, const Spot<C>& at) : column(at.column), end(p.n) {
    if constexpr (C::form == Form::wgrad) {
      const Divided of_tap = p.channel_blocks.divide(at.column / 64);
      tap = of_tap.quotient;
      block = of_tap.remainder;
      place(p);
    }
    column += at.lane % 4 * 2;
  }
  __device__ void place(const Params& p) {
    column = tap * p.channels + block * 64;
    end = tap < p.taps.by ? (tap + 1) * p.channels : 0;
  }
  __device__ void next(const Params& p, int j) {
    column += 8;
    if (C::form != Form::wgrad || j % 8 != 7) return;
    const int lane = column % 8;
    if (++block == p.channel_blocks.by) block = 0, ++tap;
    place(p);
    column += lane;
  }
};

// Stores the tile directly from registers, for any size and alignment of rows.
template <class C, class T>
__device__ void store_elements(const Params& p, const WorkUnit& u, const Accumulators<C>& d) {
  const Spot<C> at(u);
  T* out = static_cast<T*>(p.out) + u.batch * p.out_matrix;
#pragma unroll
  for (int i = 0; i < C::rows * 2; ++i) {
    const int row = at.row + i / 2 * 64 + i % 2 * 8 + at.lane / 4;
    if (row >= p.m) continue;
    T* to = out + static_cast<int64_t>(row) * p.n;
    Columns<C> c(p, at);
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j, c.next(p, j - 1)) {
      if (c.column >= c.end) continue;
      const float* x = &d[i / 2][j * 4 + i % 2 * 2];
      to[c.column] = from_float<T>(x[0]);
      if (c.column + 1 < c.end) to[c.column + 1] = from_float<T>(x[1]);
    }
  }
}

template <class C>
__device__ void store(const Params& p, const SharedStorage<C>& s, const WorkUnit& u,
                      const Accumulators<C>& d) {
  if constexpr (C::form == Form::gated) return store_gated<C>(p, s, u, d);
  if constexpr (C::loads_source)
    if (loads_source<C>(p, u)) return store_with_source<C>(p, s, u, d);
  if (u.partial >= 0 || p.store == Store::float_subtiles)
    return store_subtiles<C, true>(p, s, u, d);
  if constexpr (C::form == Form::phases) return store_subtiles<C, false>(p, s, u, d);
  if (p.store == Store::floats) return store_elements<C, float>(p, u, d);
  if constexpr (C::form != Form::wgrad) {  // its results are f32
    if (p.store == Store::subtiles) return store_subtiles<C, false>(p, s, u, d);
    store_elements<C, typename C::T>(p, u, d);
  }
}

}  // namespace ebb::cuda::gemm
