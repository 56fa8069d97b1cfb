// The way out of the kernel of gemm_sm90.cuh: what is done to the sums of a tile, and how they are
// stored.
#pragma once

#include <type_traits>

#include "backend/cuda/gemm_sm90_kernel.cuh"
#include "backend/cuda/mma.cuh"

namespace ebb::cuda::gemm {

// The sums of a multiplying thread: of 64 rows each, see Spot.
template <class C>
using Sums = float[C::rows][C::columns / 2];

// Where a warp's part of the tile begins, and who we are. A thread holds, of each 8 columns, two
// neighbours in row lane / 4 and two in that row + 8.
template <class C>
struct Spot {
  int row, column, lane;
  __device__ explicit Spot(const Unit& u) {
    const int warp = team_thread<C>() / 32, group = warp / 4;
    row = u.m * C::tile_m + group / C::across_n * C::rows * 64 + warp % 4 * 16;
    column = u.n * C::tile_n + group % C::across_n * C::columns;
    lane = threadIdx.x % 32;
  }
};

__device__ inline float bias_element(const Params& p, int column) {
  if (column >= p.n) return 0;
  if (p.bias_type == DType::f32) return static_cast<const float*>(p.bias)[column];
  if (p.bias_type == DType::f16) return to_float(static_cast<const __half*>(p.bias)[column]);
  return to_float(static_cast<const __nv_bfloat16*>(p.bias)[column]);
}
// The bias of the columns of the tile, shared out among the team's threads: asked for before the
// products, used after.
template <class C>
struct Bias {
  static constexpr int count = (C::tile_n + C::team_threads - 1) / C::team_threads;
  float mine[count];
  __device__ Bias(const Params& p, const Unit& u) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int at = team_thread<C>() + i * C::team_threads;
      mine[i] = p.bias != nullptr && at < C::tile_n ? bias_element(p, u.n * C::tile_n + at) : 0;
    }
  }
  __device__ void share(uint32_t shared) const {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int at = team_thread<C>() + i * C::team_threads;
      if (at < C::tile_n)
        asm volatile("st.shared.f32 [%0], %1;" ::"r"(shared + at * 4), "f"(mine[i]) : "memory");
    }
  }
};

template <class C>
__device__ void add_bias(uint32_t shared, const Unit& u, const Bias<C>& bias, Sums<C>& d) {
  const int barrier = 1 + team<C>();
  if (C::bias_turns == 1) barrier_of(barrier, C::team_threads);  // nobody reads the one before
  bias.share(shared);
  barrier_of(barrier, C::team_threads);  // the bias is there
  const Spot<C> at(u);
  const uint32_t from = shared + (at.column - u.n * C::tile_n + at.lane % 4 * 2) * 4;
#pragma unroll
  for (int j = 0; j < C::columns / 8; ++j) {
    float x, y;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x), "=f"(y) : "r"(from + j * 32));
#pragma unroll
    for (int i = 0; i < C::rows; ++i) {
      d[i][j * 4] += x;
      d[i][j * 4 + 1] += y;
      d[i][j * 4 + 2] += x;
      d[i][j * 4 + 3] += y;
    }
  }
}

// ---- the addend, a row for each image: read where it is added ----------------------------------

template <class C>
__device__ bool adds_rows(const Params& p, const Unit& u) {
  return p.addend_rows > 1 && u.part < 0 && !p.together;
}

template <class T>
__device__ float2 pair_of(const T* from) {
  const auto two = *reinterpret_cast<const Vec<T, 2>*>(from);
  return {to_float(two.v[0]), to_float(two.v[1])};
}

template <class C, class T>
__device__ void add_rows_as(const Params& p, const Unit& u, Sums<C>& d) {
  const Spot<C> at(u);
  const int column = at.column + at.lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < C::rows; ++i) {
    const int row = at.row + i * 64;
    if (row >= p.m) return;
    const int64_t image = (int64_t{u.batch} * p.m + row) / p.addend_rows;
    const T* from = static_cast<const T*>(p.addend) + image * p.n + column;
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j) {
      if (column + j * 8 >= p.n) continue;
      const float2 v = pair_of(from + j * 8);
      d[i][j * 4] += v.x;
      d[i][j * 4 + 1] += v.y;
      d[i][j * 4 + 2] += v.x;
      d[i][j * 4 + 3] += v.y;
    }
  }
}

template <class C>
__device__ void add_rows(const Params& p, const Unit& u, Sums<C>& d) {
  if (p.addend_type == DType::f32)
    add_rows_as<C, float>(p, u, d);
  else
    add_rows_as<C, typename C::T>(p, u, d);
}

// ---- an addend of the result's shape and type: box by box ---------------------------------------

template <class C>
__device__ bool adds_boxes(const Params& p, const Unit& u) {
  return p.addend_rows == 1 && u.part < 0 && !p.together;
}

// What a warp stores: boxes of 16 rows of C::chunk columns, one after the other.
template <class C>
struct Boxes {
  static constexpr int across = C::columns / C::chunk, count = across * C::rows;
  static constexpr int row_bytes = C::chunk * 2;
  // Where 16-byte unit `i` of a row lies: the swizzle of a box.
  __device__ static int swizzled(int row, int i) {
    return row * row_bytes + (i ^ (row_bytes == 128 ? row % 8 : row / 2 % 4)) * 16;
  }
};

template <class C>
__device__ const typename C::T* addend_at(const Params& p, const Unit& u, int row, int column) {
  return static_cast<const typename C::T*>(p.addend) + (int64_t{u.batch} * p.m + row) * p.n +
         column;
}

// Asks for box `k` of the addend, to where the box of the results will lie.
template <class C>
__device__ void ask_box(const Params& p, const Unit& u, int k, uint32_t to) {
  using B = Boxes<C>;
  const Spot<C> at(u);
  constexpr int units = B::row_bytes / 16;
  const int top = at.row + k / B::across * 64, left = at.column + k % B::across * C::chunk;
#pragma unroll 1  // few registers are left
  for (int q = at.lane; q < 16 * units; q += 32) {
    const int line = q / units, i = q % units;
    const bool exists = top + line < p.m && left + i * 8 < p.n;
    const void* from = addend_at<C>(p, u, top + line, left + i * 8);
    copy16(to + B::swizzled(line, i), exists ? from : p.addend, exists);
  }
  commit_copies();
}

// Brings the warp's part of the addend near, before the products.
template <class C>
__device__ void fetch_addend(const Params& p, const Unit& u) {
  const Spot<C> at(u);
  constexpr int lines = (C::columns + 63) / 64;  // of the cache, in a row
#pragma unroll 1
  for (int i = at.lane; i < C::rows * 16 * lines; i += 32) {
    const int line = i / lines, row = at.row + line / 16 * 64 + line % 16;
    const int column = at.column + i % lines * 64;
    if (row < p.m && column < p.n)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(addend_at<C>(p, u, row, column)));
  }
}

// Asks for the first boxes, while the last products are being made.
template <class C>
__device__ void ask_addend(const Params& p, const Places<C>& s, const Unit& u) {
  __syncwarp();  // the boxes of the tile before have been read
#pragma unroll
  for (int k = 0; k < C::buffers && k < Boxes<C>::count; ++k)
    ask_box<C>(p, u, k, s.out(threadIdx.x / 32) + k * C::buffer_bytes);
}

// ---- storing -----------------------------------------------------------------------------------

template <class T>
__device__ float2 unpack(uint32_t v) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(*reinterpret_cast<const __half2*>(&v));
  else
    return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
}

template <class T>
__device__ uint32_t pack(float low, float high) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 v = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  } else {
    const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&v);
  }
}

__device__ inline void store_matrices(uint32_t to, const uint32_t (&v)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
               "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
               : "memory");
}

// 16 rows of C::chunk columns, whose sums are d[0..], into shared memory in the swizzle of boxes.
// add: what lies there is added first.
template <class C, bool add>
__device__ void stage_chunk(const float* d, uint32_t to) {
  const int lane = threadIdx.x % 32, row = lane % 16;
#pragma unroll
  for (int j = 0; j < C::chunk / 16; ++j) {
    const uint32_t at = to + Boxes<C>::swizzled(row, 2 * j + lane / 16);
    uint32_t v[4] = {};
    if constexpr (add) load_matrices<false>(v, at);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float* x = d + 2 * j * 4 + k * 2;
      const float2 more = add ? unpack<typename C::T>(v[k]) : float2{0, 0};
      v[k] = pack<typename C::T>(x[0] + more.x, x[1] + more.y);
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
struct BoxAt {
  int64_t first, pitch;
  int rows, columns;
  __device__ BoxAt(const Params& p, const Unit& u, int row, int column) {
    if (u.part >= 0) {
      pitch = C::tile_n;
      first = (int64_t{u.part - u.m} * C::tile_m + row) * pitch + column - u.n * C::tile_n;
      rows = C::tile_m;
      columns = C::tile_n;
      return;
    }
    pitch = p.n;
    rows = p.m - row;
    columns = p.n - column;
    if constexpr (C::form == Form::wgrad) {
      const Divided tap = divide(column / 64, p.channel_blocks);
      const int channel = tap.remainder * 64 + column % 64;
      columns = tap.quotient < p.taps.by ? p.channels - channel : 0;
      column = tap.quotient * p.channels + channel;
    }
    first = u.batch * p.out_matrix + row * pitch + column;
  }
};

// A staged box to memory, in pieces of 16 bytes. (The copy engine would do that behind the loads
// that it was given for the next tiles: products of few steps took up to a tenth longer.)
template <class C, bool floats>
__device__ void send_box(const Params& p, const Unit& u, uint32_t from, int row, int column) {
  constexpr int size = floats ? 4 : 2, width = floats ? 32 : C::chunk;
  constexpr int row_bytes = width * size, pieces = row_bytes / 16;
  asm volatile("" : "+r"(row));  // registers are few: one box's addresses at a time
  const BoxAt<C> at(p, u, row, column);
  // a thread has the same piece of every few lines
  const int lane = threadIdx.x % 32, piece = lane % pieces;
  constexpr int lines = 32 / pieces;
  char* to = (u.part >= 0 ? reinterpret_cast<char*>(p.parts) : static_cast<char*>(p.out)) +
             (at.first + lane / pieces * at.pitch) * size + piece * 16;
  const int64_t next = lines * at.pitch * size;
  const int rows = piece * (16 / size) < at.columns ? at.rows : 0;
#pragma unroll
  for (int i = 0; i < 16 / lines; ++i, to += next) {
    const int line = i * lines + lane / pieces;
    const int turn = row_bytes == 128 ? line % 8 : line / 2 % 4;  // the swizzle of the box
    uint32_t v[4];
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(from + line * row_bytes + (piece ^ turn) * 16)
                 : "memory");
    if (line < rows)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v[0]), "r"(v[1]),
                   "r"(v[2]), "r"(v[3])
                   : "memory");
  }
}

template <class C, bool floats>
__device__ void store_boxes(const Params& p, const Places<C>& s, const Unit& u, const Sums<C>& d) {
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
        stage_chunk<C, false>(d[i] + c * width / 2, buffer);
      __syncwarp();  // all lanes have written
      send_box<C, floats>(p, u, buffer, at.row + i * 64, at.column + c * width);
    }
}

// The same with the addend, whose first boxes have been asked for.
template <class C>
__device__ void store_boxes_added(const Params& p, const Places<C>& s, const Unit& u,
                                  const Sums<C>& d) {
  using B = Boxes<C>;
  const Spot<C> at(u);
  const uint32_t out = s.out(threadIdx.x / 32);
#pragma unroll
  for (int k = 0; k < B::count; ++k) {
    if (C::buffers > 1 && k + 1 < B::count)
      wait_copies<1>();  // of the next box
    else
      wait_copies<0>();
    __syncwarp();  // the addend is there
    const int i = k / B::across, c = k % B::across * C::chunk;
    const uint32_t buffer = out + k % C::buffers * C::buffer_bytes;
    stage_chunk<C, true>(d[i] + c / 2, buffer);
    __syncwarp();  // all lanes have written
    send_box<C, false>(p, u, buffer, at.row + i * 64, at.column + c);
    if (k + C::buffers >= B::count) continue;
    __syncwarp();  // the box has been read
    ask_box<C>(p, u, k + C::buffers, buffer);
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
      const Divided of_tap = divide(at.column / 64, p.channel_blocks);
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

// The tile straight from registers, with any size and alignment of rows.
template <class C, class T>
__device__ void store_elements(const Params& p, const Unit& u, const Sums<C>& d) {
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
__device__ void store(const Params& p, const Places<C>& s, const Unit& u, const Sums<C>& d) {
  if constexpr (C::adds_boxes)
    if (adds_boxes<C>(p, u)) return store_boxes_added<C>(p, s, u, d);
  if (u.part >= 0 || p.store == Store::float_boxes) return store_boxes<C, true>(p, s, u, d);
  if (p.store == Store::floats) return store_elements<C, float>(p, u, d);
  if constexpr (C::form != Form::wgrad) {  // its results are f32
    if (p.store == Store::boxes) return store_boxes<C, false>(p, s, u, d);
    store_elements<C, typename C::T>(p, u, d);
  }
}

}  // namespace ebb::cuda::gemm
