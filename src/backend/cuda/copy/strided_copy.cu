#include <algorithm>

#include "backend/cuda/copy/strided_copy.h"
#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "base/error.h"

namespace ebb::cuda {
namespace {

constexpr int max_rank = static_cast<int>(largest_copy_rank);

// ---- units: runs that are contiguous on both sides, up to 16 bytes an access ----------------

constexpr int unit_threads = 256, units_each = 4, boxes_each = 8;

// A box in units; dims innermost first, strides in units.
struct UnitBox {
  const char* from;
  char* to;
  uint32_t count;
  int rank;
  FastDiv size[max_rank];
  int64_t from_step[max_rank], to_step[max_rank];
  int32_t before[max_rank];
  uint32_t extent[max_rank];
};
struct UnitParams {
  UnitBox box[boxes_each];
};

struct UnitPlace {
  int64_t from = 0, to = 0;
  bool inside = true;
};

template <bool Padded>
__device__ __forceinline__ UnitPlace place_of(const UnitBox& b, int rest) {
  UnitPlace at;
#pragma unroll
  for (int d = 0; d < max_rank; ++d) {
    if (d == b.rank) break;
    Divided at_dim = {0, rest};
    if (d + 1 < b.rank) at_dim = b.size[d].divide(rest);
    rest = at_dim.quotient;
    const int i = at_dim.remainder;
    const int32_t read = Padded ? i - b.before[d] : i;
    if (Padded) at.inside &= static_cast<uint32_t>(read) < b.extent[d];
    at.from += read * b.from_step[d];
    at.to += i * b.to_step[d];
  }
  return at;
}

// to[i . to_step] = from[(i - before) . from_step], zero outside of the extents.
// grid: 1024 units per thread block along x, one box along y.  smem: none.  needs: addresses
// aligned to U.
template <class U, bool Padded>
__global__ __launch_bounds__(unit_threads) void copy_units(const __grid_constant__ UnitParams p) {
  begin();
  const UnitBox& b = p.box[blockIdx.y];
  const uint32_t first = blockIdx.x * (unit_threads * units_each) + threadIdx.x;
  U unit[units_each];
  int64_t to[units_each];
#pragma unroll
  for (int k = 0; k < units_each; ++k) {
    const uint32_t i = first + k * unit_threads;
    if (i >= b.count) break;
    const UnitPlace at = place_of<Padded>(b, i);
    to[k] = at.to;
    unit[k] = U{};
    if (at.inside) unit[k] = reinterpret_cast<const U*>(b.from)[at.from];
  }
#pragma unroll
  for (int k = 0; k < units_each; ++k) {
    if (first + k * unit_threads >= b.count) break;
    reinterpret_cast<U*>(b.to)[to[k]] = unit[k];
  }
}

// ---- tiles: the innermost dim changes -------------------------------------------------------

constexpr int tile_threads = 256, tile_lines = 8;  // 32 columns of threads, 8 lines

// to[outer . to_step + a * a_step + b] = from[outer . from_step + b * b_step + a].
struct TileParams {
  const char* from;
  char* to;
  int64_t a, b, a_step, b_step;
  FastDiv a_tiles, b_tiles;
  int rank;
  FastDiv size[max_rank];
  int64_t from_step[max_rank], to_step[max_rank];
};

// grid: one thread block per tile of 32 * Pack x 32 * Pack elements.  needs: sizes, strides and
// addresses divisible by Pack elements.
template <class T, int Pack>
__global__ __launch_bounds__(tile_threads) void copy_tiles(const __grid_constant__ TileParams p) {
  begin();
  constexpr int side = 32 * Pack, lines = side / tile_lines;
  using V = Vec<T, Pack>;
  __shared__ V tile[side][32 + 1];
  const Divided a_tile = p.a_tiles.divide(static_cast<int>(blockIdx.x));
  const Divided b_tile = p.b_tiles.divide(a_tile.quotient);
  const int64_t a0 = int64_t{a_tile.remainder} * side, b0 = int64_t{b_tile.remainder} * side;
  int outer = b_tile.quotient;
  int64_t from_at = 0, to_at = 0;
  for (int d = 0; d < p.rank; ++d) {
    const auto [next, i] = p.size[d].divide(outer);
    outer = next;
    from_at += i * p.from_step[d];
    to_at += i * p.to_step[d];
  }
  const T* from = reinterpret_cast<const T*>(p.from) + from_at;
  T* to = reinterpret_cast<T*>(p.to) + to_at;
  const int x = threadIdx.x % 32, y = threadIdx.x / 32;
  V line[lines];
#pragma unroll
  for (int k = 0; k < lines; ++k) {
    const int64_t b = b0 + y + k * tile_lines, a = a0 + x * Pack;
    if (a < p.a && b < p.b) line[k] = *reinterpret_cast<const V*>(from + b * p.b_step + a);
  }
#pragma unroll
  for (int k = 0; k < lines; ++k) tile[y + k * tile_lines][x] = line[k];
  __syncthreads();  // the tile is complete
#pragma unroll
  for (int k = 0; k < 32 / tile_lines; ++k) {
    const int group = y + k * tile_lines;
    const int64_t a = a0 + group * Pack, b = b0 + x * Pack;
    if (a >= p.a || b >= p.b) continue;
    V in[Pack];
#pragma unroll
    for (int j = 0; j < Pack; ++j) in[j] = tile[x * Pack + j][group];
#pragma unroll
    for (int i = 0; i < Pack; ++i) {
      V out;
#pragma unroll
      for (int j = 0; j < Pack; ++j) out.v[j] = in[j].v[i];
      *reinterpret_cast<V*>(to + (a + i) * p.a_step + b) = out;
    }
  }
}

// ---- host -----------------------------------------------------------------------------------

bool padded(const CopyDim& d) { return d.before != 0 || d.extent != d.size; }

// Drops dims of size 1 and merges dims that are contiguous on both sides.
std::vector<CopyDim> joined(const std::vector<CopyDim>& dims) {
  std::vector<CopyDim> out;
  for (CopyDim d : dims) {
    if (d.extent < 0) d.extent = d.size;
    if (d.size == 1 && !padded(d)) continue;
    if (!out.empty() && !padded(d) && out.back().from == d.from * d.size &&
        out.back().to == d.to * d.size) {
      const CopyDim& o = out.back();
      out.back() = {o.size * d.size, d.from, d.to, o.before * d.size, o.extent * d.size};
    } else {
      out.push_back(d);
    }
  }
  if (out.empty()) out.push_back({.size = 1, .from = 1, .to = 1, .extent = 1});
  return out;
}

int64_t count_of(const std::vector<CopyDim>& dims) {
  int64_t n = 1;
  for (const CopyDim& d : dims) n *= d.size;
  return n;
}

// The largest power of two, `widest` at most, that divides all of `numbers`.
int64_t common_pack(std::span<const int64_t> numbers, int64_t widest) {
  int64_t pack = widest;
  for (const int64_t n : numbers)
    while (n % pack != 0) pack /= 2;
  return pack;
}

UnitBox unit_box(const std::vector<CopyDim>& dims, int64_t pack) {
  UnitBox box{.count = static_cast<uint32_t>(count_of(dims) / pack),
              .rank = static_cast<int>(dims.size())};
  for (size_t d = 0; d < dims.size(); ++d) {
    CopyDim in = dims[dims.size() - 1 - d];
    if (d == 0 && pack > 1) in = {in.size / pack, pack, pack, in.before / pack, in.extent / pack};
    box.size[d] = FastDiv(in.size);
    box.from_step[d] = in.from / pack;
    box.to_step[d] = in.to / pack;
    box.before[d] = static_cast<int32_t>(in.before);
    box.extent[d] = static_cast<uint32_t>(in.extent);
  }
  return box;
}

// The dim that is contiguous in `from`, or none.
std::vector<CopyDim>::const_iterator from_dim(const std::vector<CopyDim>& dims) {
  return std::find_if(dims.begin(), dims.end(), [](const CopyDim& d) { return d.from == 1; });
}

using UnitKernel = void (*)(UnitParams);

template <bool Padded>
UnitKernel unit_kernel(int64_t bytes) {
  switch (bytes) {
    case 1: return copy_units<uint8_t, Padded>;
    case 2: return copy_units<uint16_t, Padded>;
    case 4: return copy_units<uint32_t, Padded>;
    case 8: return copy_units<uint2, Padded>;
    default: return copy_units<uint4, Padded>;
  }
}

}  // namespace

void StridedCopy::add(const std::vector<CopyDim>& dims, CopyOffset offset) {
  Box box{joined(dims), offset};
  require(box.dims.size() <= largest_copy_rank, "copy: ", box.dims.size(), " dims are too many (",
          largest_copy_rank, " at most)");
  if (count_of(box.dims) == 0) return;
  if (transposes(box))
    boxes_.push_back(std::move(box));
  else
    split(std::move(box));
}

// Boxes with more elements than 31 bits are split in two.
void StridedCopy::split(Box box) {
  if (count_of(box.dims) < divisible) return boxes_.push_back(std::move(box));
  size_t at = 0;
  while (box.dims[at].size == 1) ++at;
  const CopyDim dim = box.dims[at];
  const int64_t half = (dim.size / 2 + 15) / 16 * 16, first_size = half < dim.size ? half : 1;
  Box second = box;
  box.dims[at].size = first_size;
  box.dims[at].extent = std::min(dim.extent, std::max<int64_t>(0, first_size - dim.before));
  CopyDim& d = second.dims[at];
  const int64_t skipped = std::max<int64_t>(0, first_size - dim.before);  // read by the first half
  d.size = dim.size - first_size;
  d.before = std::max<int64_t>(0, dim.before - first_size);
  d.extent = std::max<int64_t>(0, dim.extent - skipped);
  second.offset.from += skipped * dim.from;
  second.offset.to += first_size * dim.to;
  if (box.dims[at].extent == 0) box.dims[at].before = 0;
  split(std::move(box));
  split(std::move(second));
}

bool StridedCopy::transposes(const Box& b) {
  constexpr int64_t smallest = 16;  // below this most of a tile would be empty
  const CopyDim& inner = b.dims.back();
  const auto a = from_dim(b.dims);
  if (std::any_of(b.dims.begin(), b.dims.end(), padded) || inner.from == 1 || inner.to != 1 ||
      a == b.dims.end() || a->size < smallest || inner.size < smallest)
    return false;
  const int64_t tiles = (a->size + 31) / 32 * ((inner.size + 31) / 32);
  return count_of(b.dims) / (a->size * inner.size) * tiles < divisible;
}

int64_t StridedCopy::unit_of(const Box& b) const {
  const CopyDim& inner = b.dims.back();
  if (inner.to != 1 || inner.from != 1) return 1;
  std::vector<int64_t> numbers = {inner.size, inner.before, inner.extent, b.offset.from,
                                  b.offset.to};
  for (size_t d = 0; d + 1 < b.dims.size(); ++d)
    numbers.insert(numbers.end(), {b.dims[d].from, b.dims[d].to});
  return common_pack(numbers, widest_);
}

void StridedCopy::run(const char* name, std::span<void* const> from, void* to,
                      CudaDevice& device) const {
  if (boxes_.size() == 1 && transposes(boxes_[0])) {
    const CopyOffset& at = boxes_[0].offset;
    return run_tiles(name, static_cast<const char*>(from[at.input]) + at.from * element_,
                     static_cast<char*>(to) + at.to * element_, device);
  }
  for (size_t first = 0; first < boxes_.size(); first += boxes_each) {
    const size_t count = std::min<size_t>(boxes_each, boxes_.size() - first);
    run_units(name, std::span(boxes_).subspan(first, count), from, to, device);
  }
}

void StridedCopy::run_units(const char* name, std::span<const Box> boxes,
                            std::span<void* const> from, void* to, CudaDevice& device) const {
  int64_t pack = widest_;
  bool pads = false;
  for (const Box& b : boxes) {
    pack = std::min(pack, unit_of(b));
    pads |= std::any_of(b.dims.begin(), b.dims.end(), padded);
  }
  UnitParams p = {};
  uint32_t most = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const CopyOffset& at = boxes[i].offset;
    p.box[i] = unit_box(boxes[i].dims, pack);
    p.box[i].from = static_cast<const char*>(from[at.input]) + at.from * element_;
    p.box[i].to = static_cast<char*>(to) + at.to * element_;
    most = std::max(most, p.box[i].count);
  }
  const dim3 grid(blocks_for(most, unit_threads * units_each), static_cast<unsigned>(boxes.size()));
  const UnitKernel kernel =
      pads ? unit_kernel<true>(pack * element_) : unit_kernel<false>(pack * element_);
  launch(name, kernel, {.grid = grid, .block = unit_threads}, p, device);
}

void StridedCopy::run_tiles(const char* name, const void* from, void* to,
                            CudaDevice& device) const {
  std::vector<CopyDim> outer = boxes_[0].dims;
  const CopyDim b = outer.back();
  outer.pop_back();
  const CopyDim a = *from_dim(outer);
  outer.erase(from_dim(outer));
  const CopyOffset& at = boxes_[0].offset;
  std::vector<int64_t> numbers = {a.size, b.size, a.to, b.from, at.from, at.to};
  TileParams p{.from = static_cast<const char*>(from),
               .to = static_cast<char*>(to),
               .a = a.size,
               .b = b.size,
               .a_step = a.to,
               .b_step = b.from,
               .rank = static_cast<int>(outer.size())};
  for (size_t d = 0; d < outer.size(); ++d) {
    const CopyDim& in = outer[outer.size() - 1 - d];
    p.size[d] = FastDiv(in.size);
    p.from_step[d] = in.from;
    p.to_step[d] = in.to;
    numbers.insert(numbers.end(), {in.from, in.to});
  }
  const int64_t best = std::max<int64_t>(1, 4 / element_);
  const bool packed = common_pack(numbers, std::min(best, widest_)) == best;
  const int64_t side = packed ? 32 * best : 32;
  p.a_tiles = FastDiv((a.size + side - 1) / side);
  p.b_tiles = FastDiv((b.size + side - 1) / side);
  const Launch l{
      .grid = static_cast<unsigned>(int64_t{p.a_tiles.by} * p.b_tiles.by * count_of(outer)),
      .block = tile_threads};
  switch (element_) {
    case 1:
      return launch(name, packed ? copy_tiles<uint8_t, 4> : copy_tiles<uint8_t, 1>, l, p, device);
    case 2:
      return launch(name, packed ? copy_tiles<uint16_t, 2> : copy_tiles<uint16_t, 1>, l, p, device);
    case 4: return launch(name, copy_tiles<uint32_t, 1>, l, p, device);
    default: return launch(name, copy_tiles<uint2, 1>, l, p, device);
  }
}

std::vector<CopyDim> copy_dims(std::span<const int64_t> sizes, std::span<const int64_t> from,
                               std::span<const int64_t> to) {
  std::vector<CopyDim> dims;
  for (size_t d = 0; d < sizes.size(); ++d) dims.push_back({sizes[d], from[d], to[d]});
  return dims;
}

bool can_copy(const std::vector<CopyDim>& dims) { return joined(dims).size() <= largest_copy_rank; }

}  // namespace ebb::cuda
