// embedding_grad in four launches: ids are sorted in tiles, the tiles are merged, the ids' rows of
// dy are summed in chunks of the order, and rows of the table that lie in several chunks are
// joined. An id that most tokens have, as the padding of captions, costs no more than others.
#include <algorithm>
#include <climits>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "backend/cuda/kit/fault.cuh"
#include "base/round_up.h"
#include "ir/kernel.h"
#include "ops/prim/embedding_grad/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int sorted_each = 64;               // ids that a thread block finds the places of
constexpr int parts = 8;                      // threads for each
constexpr int sorting = sorted_each * parts;  // threads
constexpr int tile = 2048;                    // ids that are sorted in shared memory
constexpr int chunk = 32;                     // places whose rows a thread block adds up
constexpr int threads = 128;                  // of a chunk, one for each column

template <class T>
struct Params {
  const T* dy;
  const int64_t* ids;
  float* out;
  int64_t rows, width;
  int count, column_tiles;  // column_tiles: of `threads` columns
  // By place in the sorted order, and in that of a tile: the token, its row (-1: none).
  int *token, *row, *tile_token, *tile_row;
  float* partial;  // [chunk, 2, width]: of a row that began before, and of one that goes on
  Fault* fault;

  // Whether the place begins another row than the one before it.
  __device__ bool begins(int place) const {
    return place == 0 || place >= count || row[place] != row[place - 1];
  }
  __device__ float* partial_of(int c, bool last) const { return partial + (2 * c + last) * width; }
};

template <class T>
__device__ int row_of(const Params<T>& p, int token) {
  const int64_t id = p.ids[token];
  return id >= 0 && id < p.rows ? static_cast<int>(id) : -1;
}

__device__ int below(const int4& v, int row) {
  return (v.x < row) + (v.y < row) + (v.z < row) + (v.w < row);
}

// Of the rows of a tile the number of those before `row` in the stable order: the first `earlier`
// are so also where they are equal. A thread looks at every `parts`th four.
__device__ int before_in_tile(const int4* tile_rows, int there, int part, int row, int earlier) {
  int n = 0, q = part;
  for (; 4 * q + 4 <= earlier; q += parts) n += below(tile_rows[q], row + 1);
  if (4 * q < earlier) {
    const int4 v = tile_rows[q];
    const int e = earlier - 4 * q;  // 1 to 3
    n += (v.x < row + 1) + (v.y < row + (1 < e)) + (v.z < row + (2 < e)) + (v.w < row);
    q += parts;
  }
  for (; 4 * q < there; q += parts) n += below(tile_rows[q], row);
  return n;
}

// Sorts the ids of each tile. Also fills the table with zeros, and reports invalid ids.
// grid: one block for `sorted_each` ids.  deterministic.
template <class T>
__global__ __launch_bounds__(sorting) void embedding_grad_sort(
    const __grid_constant__ Params<T> p) {
  begin();
  __shared__ int4 rows[tile / 4];
  __shared__ int before[sorted_each];
  const int64_t all = p.rows * p.width;
  for (int64_t i = int64_t{blockIdx.x} * sorting + threadIdx.x; i < all;
       i += int64_t{gridDim.x} * sorting)
    p.out[i] = 0;
  const int own = threadIdx.x % sorted_each, part = threadIdx.x / sorted_each;
  const int token = blockIdx.x * sorted_each + own, first = token / tile * tile;
  const int there = ::min(tile, p.count - first);
  for (int i = threadIdx.x; i < rounded_up(there, 4); i += sorting)
    reinterpret_cast<int*>(rows)[i] = i < there ? row_of(p, first + i) : INT_MAX;
  if (part == 0) before[own] = 0;
  __syncthreads();
  const int row = token < p.count ? reinterpret_cast<int*>(rows)[token - first] : 0;
  if (token < p.count) {
    atomicAdd(&before[own], before_in_tile(rows, there, part, row, token - first));
    if (part == 0 && row < 0) report(p.fault, id_out_of_range, p.ids[token], p.rows);
  }
  __syncthreads();
  if (token >= p.count || part > 0) return;
  p.tile_token[first + before[own]] = token;
  p.tile_row[first + before[own]] = row;
}

// Of sorted rows the number of those below `row`.
__device__ int below(const int* rows, int count, int row) {
  int begin = 0, end = count;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    const bool less = rows[middle] < row;
    begin = less ? middle + 1 : begin;
    end = less ? end : middle;
  }
  return begin;
}

// Merges the tiles: the place of an id in the stable order is the number of ids before it in its
// own tile and in all others.
// grid: one block for `sorted_each` ids.  deterministic.
template <class T>
__global__ __launch_bounds__(sorting) void embedding_grad_merge(
    const __grid_constant__ Params<T> p) {
  begin();
  __shared__ int before[sorted_each];
  const int own = threadIdx.x % sorted_each, part = threadIdx.x / sorted_each;
  const int at = blockIdx.x * sorted_each + own, first = at / tile * tile;
  if (part == 0) before[own] = at - first;
  __syncthreads();
  const int row = at < p.count ? p.tile_row[at] : 0;
  int n = 0;
  for (int other = part * tile; other < p.count && at < p.count; other += parts * tile)
    if (other != first)  // an equal one of an earlier tile is before it
      n += below(p.tile_row + other, ::min(tile, p.count - other), row + (other < first));
  if (n > 0) atomicAdd(&before[own], n);
  __syncthreads();
  if (at >= p.count || part > 0) return;
  p.token[before[own]] = p.tile_token[at];
  p.row[before[own]] = row;
}

// out[r, :] of rows all of whose places are in the chunk, and the chunk's parts of others.
// grid: one block for a chunk and `threads` columns.  sums: f32, in the order of the ids.
// deterministic.
template <class T>
__global__ __launch_bounds__(threads) void embedding_grad_sum(const __grid_constant__ Params<T> p) {
  begin();
  const int c = blockIdx.x / p.column_tiles;
  const int64_t column = int64_t{blockIdx.x % p.column_tiles} * threads + threadIdx.x;
  if (column >= p.width) return;
  const int first = c * chunk, end = ::min(first + chunk, p.count);
  float values[chunk];
#pragma unroll
  for (int k = 0; k < chunk; ++k)
    values[k] = first + k < end ? to_float(p.dy[p.token[first + k] * p.width + column]) : 0.f;
  bool whole = p.begins(first);
  float sum = 0;
#pragma unroll
  for (int k = 0; k < chunk; ++k) {
    const int place = first + k;
    if (place >= end) break;
    sum += values[k];
    const bool last = p.begins(place + 1);
    if (!last && place + 1 < end) continue;
    if (!whole)
      p.partial_of(c, false)[column] = sum;
    else if (!last)
      p.partial_of(c, true)[column] = sum;
    else if (p.row[place] >= 0)
      p.out[p.row[place] * p.width + column] = sum;
    whole = true, sum = 0;
  }
}

// The place behind the last of `row`.
template <class T>
__device__ int end_of(const Params<T>& p, int row, int begin) {
  int end = p.count;
  while (begin < end) {
    const int middle = (begin + end) / 2;
    (p.row[middle] <= row ? begin : end) = middle + (p.row[middle] <= row ? 1 : 0);
  }
  return end;
}

// out[r, :] of the row that begins in the chunk and ends in a later one.
// grid: one block for a chunk and `threads` columns.  sums: f32, in the order of the chunks.
// deterministic.
template <class T>
__global__ __launch_bounds__(threads) void embedding_grad_join(
    const __grid_constant__ Params<T> p) {
  begin();
  const int c = blockIdx.x / p.column_tiles, next = (c + 1) * chunk;
  const int64_t column = int64_t{blockIdx.x % p.column_tiles} * threads + threadIdx.x;
  if (column >= p.width || p.begins(next)) return;
  const int row = p.row[next];
  if (row < 0 || (!p.begins(c * chunk) && p.row[c * chunk] == row)) return;  // an earlier one does
  const int last = (end_of(p, row, next) - 1) / chunk;
  float sum = p.partial_of(c, true)[column];
#pragma unroll 16
  for (int k = c + 1; k <= last; ++k) sum += p.partial_of(k, false)[column];
  p.out[row * p.width + column] = sum;
}

template <class T>
void run(Params<T> p, CudaDevice& device) {
  launch("embedding_grad_sort", embedding_grad_sort<T>,
         {.grid = std::max(1u, blocks_for(p.count, sorted_each)), .block = sorting}, p, device);
  if (p.count == 0 || p.width == 0) return;
  launch("embedding_grad_merge", embedding_grad_merge<T>,
         {.grid = blocks_for(p.count, sorted_each), .block = sorting}, p, device);
  const Launch chunks{.grid = blocks_for(p.count, chunk) * static_cast<unsigned>(p.column_tiles),
                      .block = threads};
  launch("embedding_grad_sum", embedding_grad_sum<T>, chunks, p, device);
  launch("embedding_grad_join", embedding_grad_join<T>, chunks, p, device);
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const int64_t rows = s.as<EmbeddingGrad>().rows, width = s.in[0].shape[-1];
  const int64_t count = s.in[1].shape.numel(), places = rounded_up(count, 4);
  const int64_t chunks = ceil_div(count, chunk);
  return {.workspace = 4 * places * 4 + chunks * 2 * width * 4,
          .run = [=, dtype = s.in[0].dtype, &device](const Call& c) {
            visit_float(dtype, [&](auto zero) {
              using T = decltype(zero);
              auto* const places_at = static_cast<int*>(c.workspace);
              run(Params<T>{.dy = static_cast<const T*>(c.in[0]),
                            .ids = static_cast<const int64_t*>(c.in[1]),
                            .out = static_cast<float*>(c.out[0]),
                            .rows = rows,
                            .width = width,
                            .count = static_cast<int>(count),
                            .column_tiles = static_cast<int>(ceil_div(width, threads)),
                            .token = places_at,
                            .row = places_at + places,
                            .tile_token = places_at + 2 * places,
                            .tile_row = places_at + 3 * places,
                            .partial = reinterpret_cast<float*>(places_at + 4 * places),
                            .fault = of(device).fault()},
                  of(device));
            });
          }};
}

// Ids are counted, and twice their number is, in 32 bits.
bool supports(const Signature& s, const Device&) {
  return is_float(s.in[0].dtype) && s.in[1].shape.numel() < INT_MAX / 2 &&
         s.as<EmbeddingGrad>().rows < INT_MAX;
}

}  // namespace

std::vector<Kernel> embedding_grad() {
  return {{.op = "embedding_grad",
           .name = "embedding_grad_sorted",
           .supports = supports,
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
