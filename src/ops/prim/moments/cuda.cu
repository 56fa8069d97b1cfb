// moments on CUDA. Rows that fit into registers are read once and summed twice. Everything else is
// images: blocks take chunks of pixels, threads keep to their channels and sum differences from a
// value of the group, and the chunks are joined in a fixed order (Chan et al. 1979).
#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "ir/kernel.h"
#include "ops/prim/moments/cuda_plan.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

// Mean, and sum of squared differences from it.
struct Stats {
  float mean, squares;
};

// The sum over Threads threads: a power of two up to a warp, or a block.
template <int Threads>
__device__ __forceinline__ float threads_sum(float v) {
  if constexpr (Threads > 32) {
    return block_sum<Threads>(v);
  } else {
#pragma unroll
    for (int offset = Threads / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
    return v;
  }
}

// ---- rows -----------------------------------------------------------------------------------

template <class T>
struct RowParams {
  const T* x;
  float *mean, *var;
  int64_t rows, size;
};

// Threads of a block: rows that take a warp share it.
template <int Threads>
constexpr int row_block = Threads > 32 ? Threads : 128;

// Mean and variance of rows of `size` elements, which registers hold.
// grid: Threads threads a row, up to a warp or a block.  sums: f32, the squares after the mean.
//  needs: size <= Threads * Each * Pack, size % Pack == 0, x aligned to Pack elements.
template <class T, int Pack, int Threads, int Each>
__global__ __launch_bounds__(row_block<Threads>) void moments_rows(
    const __grid_constant__ RowParams<T> p) {
  begin();
  using V = Vec<T, Pack>;
  constexpr int rows_each = row_block<Threads> / Threads;
  const int lane = threadIdx.x % Threads;
  const int64_t row = int64_t{blockIdx.x} * rows_each + threadIdx.x / Threads;
  const int packs = static_cast<int>(p.size / Pack), left = row < p.rows ? packs - lane : 0;
  const V* const x = reinterpret_cast<const V*>(p.x) + row * packs + lane;
  V v[Each];
#pragma unroll
  for (int k = 0; k < Each; ++k)
    if (k * Threads < left) v[k] = x[k * Threads];
  float sum = 0;
#pragma unroll
  for (int k = 0; k < Each; ++k) {
    if (k * Threads >= left) break;
    const auto values = floats_of(v[k]);
#pragma unroll
    for (int j = 0; j < Pack; ++j) sum += values.v[j];
  }
  const float n = static_cast<float>(p.size);
  const float mean = threads_sum<Threads>(sum) / n;
  float squares = 0;
#pragma unroll
  for (int k = 0; k < Each; ++k) {
    if (k * Threads >= left) break;
    const auto values = floats_of(v[k]);
#pragma unroll
    for (int j = 0; j < Pack; ++j) squares += (values.v[j] - mean) * (values.v[j] - mean);
  }
  squares = threads_sum<Threads>(squares);
  if (lane != 0 || row >= p.rows) return;
  p.mean[row] = mean;
  p.var[row] = squares / n;
}

// ---- images ---------------------------------------------------------------------------------

constexpr int image_threads = moments_threads, pixels_each = 4;

// A thread block processes `chunk` pixels of an image and `tile` of its channels (full groups); its
// threads form `rows`, each as wide as the tile.
template <class T>
struct ImageParams {
  const T* x;
  float *mean, *var;
  Stats* partials;    // [image, tile, chunk, group of the tile]
  unsigned* arrived;  // [image, tile]; zero between launches
  int64_t pixels, chunk;
  FastDiv chunks, tiles, columns;  // columns: accesses of a tile
  int channels, rows;
  int groups, group_channels;  // groups of a tile, channels of a group
};

// A group of `lanes` threads of a warp; this is number `lane`.
struct Lanes {
  int lane, lanes;
  __device__ float sum(float v) const {
    for (int offset = lanes / 2; offset > 0; offset /= 2) v += __shfl_xor_sync(~0u, v, offset);
    return v;
  }
};

// Calls f(group, lanes) for every group, on its lanes. All threads call it equally often: those
// that find no group left with one that does not exist.
template <class F>
__device__ __forceinline__ void each_group(int groups, F f) {
  int lanes = 32;
  while (lanes > 1 && lanes * groups > static_cast<int>(blockDim.x)) lanes /= 2;
  const int mine = threadIdx.x / lanes, step = blockDim.x / lanes;
  for (int first = 0; first < groups; first += step) {
    f(first + mine, Lanes{static_cast<int>(threadIdx.x) % lanes, lanes});
  }
}

// Sums of differences from a shift, and of their squares.
struct Sums {
  float first = 0, second = 0;
  __device__ void add(float d) {
    first += d;
    second += d * d;
  }
  __device__ void add(const Sums& s) {
    first += s.first;
    second += s.second;
  }
  // Of the same n values from a shift that lies `by` lower.
  __device__ Sums shifted(float by, float n) const {
    return {first + n * by, second + by * (2 * first + n * by)};
  }
};

// Sums over `pixels`, `step` accesses apart, of every channel from its shift.
template <class T, int Pack>
__device__ __forceinline__ void sum_pixels(const Vec<T, Pack>* x, int64_t step, int pixels,
                                           const Vec<float, Pack>& shift, Sums* out) {
  const auto add = [&](const Vec<T, Pack>& v) {
    const auto values = floats_of(v);
#pragma unroll
    for (int k = 0; k < Pack; ++k) out[k].add(values.v[k] - shift.v[k]);
  };
  int i = 0;
  for (; i + pixels_each <= pixels; i += pixels_each, x += pixels_each * step) {
    Vec<T, Pack> v[pixels_each];
#pragma unroll
    for (int k = 0; k < pixels_each; ++k) v[k] = x[k * step];
#pragma unroll
    for (int k = 0; k < pixels_each; ++k) add(v[k]);
  }
#pragma unroll 1
  for (; i < pixels; ++i, x += step) add(*x);
}

// True in the one block that is the last of `count` to come here; it sees what the others wrote.
__device__ __forceinline__ bool last_to_come(unsigned* arrived, unsigned count) {
  __shared__ bool last;
  __syncthreads();  // the block has written
  if (threadIdx.x == 0) {
    unsigned before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                 : "=r"(before)
                 : "l"(arrived)
                 : "memory");
    last = before + 1 == count;
    if (last) *arrived = 0;
  }
  __syncthreads();  // last is known
  return last;
}

constexpr int row_partials =
    16;  // partial sums of rows per thread block, before the sums over groups

// Where lanes of a warp share columns, adds their sums: a warp becomes a row. Returns the rows.
template <int Lines>
__device__ __forceinline__ int add_lanes(Sums* sum, int rows, int width) {
  const int warps = blockDim.x / 32;
  if (rows <= warps || 32 % width != 0) return rows;
  for (int offset = 16; offset >= width; offset /= 2)
#pragma unroll
    for (int k = 0; k < Lines; ++k)
      sum[k].add(Sums{__shfl_xor_sync(~0u, sum[k].first, offset),
                      __shfl_xor_sync(~0u, sum[k].second, offset)});
  return warps;
}

// Adds the rows of own[line][row][column] up to row_parts of them, in place. Ends with a barrier.
template <int Lines>
__device__ __forceinline__ void add_rows(Sums* own, int rows, const FastDiv& columns) {
  const int width = columns.by;
  __syncthreads();  // own is complete
  if (rows > row_partials) {
    for (int e = threadIdx.x; e < Lines * row_partials * width; e += blockDim.x) {
      const auto [line, column] = columns.divide(e);
      const int first = line % row_partials;
      Sums* const mine = own + (line / row_partials * rows + first) * width + column;
      Sums sum = *mine;
#pragma unroll 4
      for (int r = row_partials; r + first < rows; r += row_partials) sum.add(mine[r * width]);
      *mine = sum;
    }
  }
  __syncthreads();  // the sums are complete
}

// The statistics of a group over a block's pixels. Behind the sums lie their shifts, as [line]
// [column]. Overwrites the group's sums.
template <class T, int Pack, int Lines>
__device__ __forceinline__ Stats join_channels(const ImageParams<T>& p, Sums* own, int rows,
                                               int pixels, int g, Lanes l) {
  constexpr int each = Pack / Lines;  // channels that share a sum
  const float n = static_cast<float>(pixels) * each;
  const int width = p.columns.by;
  const int first = g * p.group_channels + l.lane * each, step = l.lanes * each;
  const int last = g < p.groups ? (g + 1) * p.group_channels : 0;
  const float* const shift = reinterpret_cast<const float*>(own + Lines * rows * width);
  const auto sums_of = [&](int c) { return own + c % Pack / each * rows * width + c / Pack; };
  float mean = 0, squares = 0;
  for (int c = first; c < last; c += step) {
    Sums* const mine = sums_of(c);
    Sums sum;
#pragma unroll
    for (int r = 0; r < row_partials; ++r)
      if (r < rows) sum.add(mine[r * width]);
    const float m = sum.first / n;
    const float from = shift[c % Pack / each * width + c / Pack];
    *mine = {from + m, fmaxf(0.f, sum.second - sum.first * m)};  // mean and squares
    mean += mine->first;
  }
  mean = l.sum(mean) * each / static_cast<float>(p.group_channels);
  for (int c = first; c < last; c += step) {
    const Sums s = *sums_of(c);
    squares += s.second + n * (s.first - mean) * (s.first - mean);
  }
  return {mean, l.sum(squares)};
}

// The statistics of a group over an image's chunks; their means are counted from the first one's.
template <class T>
__device__ __forceinline__ Stats combine_chunks(const ImageParams<T>& p, const Stats* partials,
                                                Lanes l) {
  const auto* const from = reinterpret_cast<const float2*>(partials);
  const int chunks = p.chunks.by;
  const float group_channels = static_cast<float>(p.group_channels),
              whole = static_cast<float>(p.chunk) * group_channels;
  const float rest = static_cast<float>(p.pixels - (chunks - 1) * p.chunk) * group_channels;
  const float shift = __ldcg(from).x;
  Sums sum;
#pragma unroll 4
  for (int i = l.lane; i < chunks; i += l.lanes) {
    const float2 s = __ldcg(from + i * p.groups);
    const float n = i + 1 < chunks ? whole : rest;
    sum.add(Sums{0, s.y}.shifted(s.x - shift, n));
  }
  sum = {l.sum(sum.first), l.sum(sum.second)};
  const float mean = sum.first / (static_cast<float>(p.pixels) * group_channels);
  return {shift + mean, fmaxf(0.f, sum.second - sum.first * mean)};
}

// Mean and variance over all pixels, for each of an image's groups of channels.
// grid: one block a chunk, tile and image, chunks innermost.  smem: Sums for each thread and
// channel (Whole: for each thread).  sums: f32 differences from the block's first pixel; added in a
// fixed order by the block, joined by the last block of an image and tile.  deterministic.  needs:
// channels of a tile % Pack == 0, addresses aligned; Whole: part % Pack == 0.
template <class T, int Pack, bool Whole>
__global__ __launch_bounds__(image_threads,
                             2) void moments_images(const __grid_constant__ ImageParams<T> p) {
  begin();
  extern __shared__ Sums own[];  // [line][row][column]; lines: channels of an access, Whole: one
  constexpr int lines = Whole ? 1 : Pack;
  const auto [item, chunk] = p.chunks.divide(static_cast<int>(blockIdx.x));
  const auto [image, tile] = p.tiles.divide(item);
  const auto [row, column] = p.columns.divide(static_cast<int>(threadIdx.x));
  const int64_t first = int64_t{chunk} * p.chunk;
  const int pixels = static_cast<int>(::min(p.chunk, p.pixels - first));
  const int width = p.columns.by;
  const T* const x = p.x + (image * p.pixels + first) * p.channels + int64_t{tile} * width * Pack;
  Sums sum[Pack];
  Vec<float, Pack> shift;
  if (row < p.rows) {
    const auto* const from = reinterpret_cast<const Vec<T, Pack>*>(x) + column;
    const int64_t step = p.channels / Pack;
    const int mine = (pixels - row + p.rows - 1) / p.rows;
    shift = floats_of(*from);
    sum_pixels(from + row * step, p.rows * step, mine, shift, sum);
#pragma unroll
    for (int k = lines; k < Pack; ++k)
      sum[0].add(sum[k].shifted(shift.v[k] - shift.v[0], static_cast<float>(mine)));
  }
  const int rows = add_lanes<lines>(sum, p.rows, width);
  const int line = rows == p.rows ? row : threadIdx.x / 32;
  const bool keeps = rows == p.rows ? row < rows : static_cast<int>(threadIdx.x) % 32 < width;
#pragma unroll
  for (int k = 0; k < lines && keeps; ++k) {
    own[(k * rows + line) * width + column] = sum[k];
    if (line == 0)
      reinterpret_cast<float*>(own + lines * rows * width)[k * width + column] = shift.v[k];
  }
  add_rows<lines>(own, rows, p.columns);
  const int64_t output = int64_t{item} * p.groups;
  const auto write = [&](int g, const Stats& s) {
    p.mean[output + g] = s.mean;
    p.var[output + g] =
        s.squares / (static_cast<float>(p.pixels) * static_cast<float>(p.group_channels));
  };
  const int chunks = p.chunks.by;
  each_group(p.groups, [&](int g, Lanes l) {
    const Stats s = join_channels<T, Pack, lines>(p, own, rows, pixels, g, l);
    if (g >= p.groups || l.lane != 0) return;
    if (chunks == 1)
      write(g, s);
    else
      p.partials[int64_t{blockIdx.x} * p.groups + g] = s;
  });
  if (chunks == 1 || !last_to_come(p.arrived + item, chunks)) return;
  each_group(p.groups, [&](int g, Lanes l) {
    const Stats s = combine_chunks(p, p.partials + output * chunks + ::min(g, p.groups - 1), l);
    if (g < p.groups && l.lane == 0) write(g, s);
  });
}

// ---- any sizes ------------------------------------------------------------------------------

template <class T>
struct PlainParams {
  const T* x;
  float *mean, *var;
  int64_t pixels, channels, groups, group_channels;
};

// The same, reading everything twice. grid: one block a group.  sums: f32.
template <class T>
__global__ __launch_bounds__(256) void moments_plain(const __grid_constant__ PlainParams<T> p) {
  begin();
  const int64_t image = blockIdx.x / p.groups, group = blockIdx.x % p.groups;
  const int64_t count = p.pixels * p.group_channels;
  const T* const x = p.x + image * p.pixels * p.channels + group * p.group_channels;
  const auto at = [&](int64_t i) {
    return to_float(x[i / p.group_channels * p.channels + i % p.group_channels]);
  };
  const float n = count > 0 ? static_cast<float>(count) : 1.f;
  float sum = 0, squares = 0;
  for (int64_t i = threadIdx.x; i < count; i += 256) sum += at(i);
  const float mean = block_sum<256>(sum) / n;
  for (int64_t i = threadIdx.x; i < count; i += 256) squares += (at(i) - mean) * (at(i) - mean);
  squares = block_sum<256>(squares);
  if (threadIdx.x != 0) return;
  p.mean[blockIdx.x] = mean;
  p.var[blockIdx.x] = squares / n;
}

// ---- host ---------------------------------------------------------------------------------------

struct Addresses {
  const void* x;
  float *mean, *var;
  Stats* partials;
  unsigned* arrived;
};

template <class T, int Pack, int Threads, int Each>
void run_rows(const MomentsProblem& p, const Addresses& a, CudaDevice& device) {
  const RowParams<T> k{static_cast<const T*>(a.x), a.mean, a.var, p.outer, p.channels};
  launch("moments_rows", moments_rows<T, Pack, Threads, Each>,
         {.grid = blocks_for(p.outer * Threads, row_block<Threads>), .block = row_block<Threads>},
         k, device);
}

// False: the rows are too long.
template <class T, int Pack>
bool try_rows(const MomentsProblem& p, const Addresses& a, CudaDevice& device) {
  const int64_t packs = p.channels / Pack;
  if (packs <= 8 * 4) return run_rows<T, Pack, 8, 4>(p, a, device), true;
  if (packs <= 16 * 4) return run_rows<T, Pack, 16, 4>(p, a, device), true;
  if (packs <= 32 * 4) return run_rows<T, Pack, 32, 4>(p, a, device), true;
  if (packs <= 32 * 8) return run_rows<T, Pack, 32, 8>(p, a, device), true;
  if (packs <= 128 * 4) return run_rows<T, Pack, 128, 4>(p, a, device), true;
  if (packs <= 128 * 8) return run_rows<T, Pack, 128, 8>(p, a, device), true;
  if (packs <= 512 * 8) return run_rows<T, Pack, 512, 8>(p, a, device), true;
  return false;
}

template <class T, int Pack>
void run_images(const MomentsProblem& p, const MomentsPlan& plan, const Addresses& a,
                CudaDevice& device) {
  const ImageParams<T> k{.x = static_cast<const T*>(a.x),
                         .mean = a.mean,
                         .var = a.var,
                         .partials = a.partials,
                         .arrived = a.arrived,
                         .pixels = p.pixels,
                         .chunk = plan.chunk,
                         .chunks = FastDiv(plan.chunks),
                         .tiles = FastDiv(p.channels / plan.tile),
                         .columns = FastDiv(plan.tile / Pack),
                         .channels = static_cast<int>(p.channels),
                         .rows = static_cast<int>(plan.rows),
                         .groups = static_cast<int>(plan.tile / p.group_channels()),
                         .group_channels = static_cast<int>(p.group_channels())};
  const bool whole = p.group_channels() % Pack == 0;
  const int64_t threads = plan.rows * (plan.tile / Pack);
  const Launch l{.grid = static_cast<unsigned>(p.outer * (p.channels / plan.tile) * plan.chunks),
                 .block = static_cast<unsigned>((threads + 31) / 32 * 32),
                 .shared = (whole ? 1 : Pack) *
                           (plan.rows * static_cast<int64_t>(sizeof(Sums)) +
                            static_cast<int64_t>(sizeof(float))) *
                           (plan.tile / Pack)};
  launch("moments_images", whole ? moments_images<T, Pack, true> : moments_images<T, Pack, false>,
         l, k, device);
}

template <class T>
void run_plain(const MomentsProblem& p, const Addresses& a, CudaDevice& device) {
  const PlainParams<T> k{static_cast<const T*>(a.x), a.mean, a.var, p.pixels, p.channels, p.groups,
                         p.group_channels()};
  launch("moments_plain", moments_plain<T>,
         {.grid = static_cast<unsigned>(p.outer * p.groups), .block = 256}, k, device);
}

template <class T, int Pack>
bool try_way(const MomentsProblem& p, const MomentsWay& w, const Addresses& a, CudaDevice& device) {
  if (p.channels % Pack != 0 || p.channels == 0) return false;
  if (p.pixels == 1 && try_rows<T, Pack>(p, a, device)) return true;
  if (w.plan.tile == 0) return false;
  run_images<T, Pack>(w.problem, w.plan, a, device);
  return true;
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const MomentsProblem p = moments_problem(s);
  const int sms = of(device).sm_count();
  const MomentsWay best = moments_way(p, 16 / p.element, sms), narrow = moments_way(p, 1, sms);
  const auto arrived = device.allocate(std::max(best.items(), narrow.items()) * 4);
  const int64_t partials = std::max(best.partials(), narrow.partials());
  const auto run = [=, packs = s.aligned, dtype = s.in[0].dtype, &device](const Call& c) {
    const Addresses a{c.in[0], static_cast<float*>(c.out[0]), static_cast<float*>(c.out[1]),
                      static_cast<Stats*>(c.workspace), static_cast<unsigned*>(arrived->data())};
    visit_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      const bool done = packs && try_way<T, wide<T>>(p, best, a, of(device));
      if (!done && !try_way<T, 1>(p, narrow, a, of(device))) run_plain<T>(p, a, of(device));
    });
  };
  return {.workspace = partials * static_cast<int64_t>(sizeof(Stats)), .run = run};
}

}  // namespace

std::vector<Kernel> moments() {
  return {{.op = "moments",
           .name = "moments_chunks",
           .supports = +[](const Signature& s, const Device&) { return is_float(s.in[0].dtype); },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
