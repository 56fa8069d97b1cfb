// resample on CUDA: any two maps by tables of taps; pixels to 2x2 blocks and back without.
#include <algorithm>
#include <cstring>
#include <optional>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "ir/kernel.h"
#include "ir/roofline.h"
#include "ops/prim/resample/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 256;

struct Sizes {
  int64_t n, h, w, p, q, c;
};

// ---- tables ---------------------------------------------------------------------------------

// One entry of an AxisMap. Rows are filled up with weights of 0, whose pixels are not read.
struct Tap {
  int32_t index = 0;
  float weight = 0;
};

template <class T>
struct TapParams {
  const T* x;
  T* y;
  const Tap *rows, *columns;  // [p, row_taps], [q, column_taps]
  int row_taps, column_taps;
  Sizes k;
  int64_t packs, count;
};

// y[n, p, q, :] = sum over the taps of row p and column q of weight * x[n, row, column, :].
// grid: one thread for Pack channels of a result.  sums: f32.  needs: C % Pack == 0, addresses
// aligned. Taps: their number along each axis, 0 if it is that of the parameters.
template <class T, int Pack, int Taps>
__global__ __launch_bounds__(threads) void resample_taps(const __grid_constant__ TapParams<T> p) {
  begin();
  using V = Vec<T, Pack>;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.count) return;
  const Place at = place_of(i, p.k.p, p.k.q, p.packs);
  const V* const image = reinterpret_cast<const V*>(p.x) + at.n * p.k.h * p.k.w * p.packs + at.pack;
  const int row_taps = Taps ? Taps : p.row_taps, column_taps = Taps ? Taps : p.column_taps;
  const Tap* const rows = p.rows + at.row * row_taps;
  const Tap* const columns = p.columns + at.column * column_taps;
  Vec<float, Pack> sum = {};
#pragma unroll
  for (int r = 0; r < row_taps; ++r) {
    const Tap row = rows[r];
    const V* const line = image + row.index * (p.k.w * p.packs);
#pragma unroll
    for (int s = 0; s < column_taps; ++s) {
      const Tap column = columns[s];
      const float weight = row.weight * column.weight;
      V x = {};
      if (weight != 0) x = line[column.index * static_cast<int>(p.packs)];
      const auto v = floats_of(x);
#pragma unroll
      for (int k = 0; k < Pack; ++k) sum.v[k] += weight * v.v[k];
    }
  }
  reinterpret_cast<V*>(p.y)[i] = rounded_to<T>(sum);
}

// ---- blocks of 2x2 pixels -------------------------------------------------------------------

template <class T>
struct BlockParams {
  const T* x;
  T* y;
  Sizes k;
  int64_t packs, count;
  float weight;
};

// y[n, 2i + {0,1}, 2j + {0,1}, :] = weight * x[n, i, j, :]; zero beyond the last block.
// grid: one thread for Pack channels of a block.  needs: C % Pack == 0, addresses aligned.
template <class T, int Pack>
__global__ __launch_bounds__(threads) void resample_spread2(
    const __grid_constant__ BlockParams<T> p) {
  begin();
  using V = Vec<T, Pack>;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.count) return;
  const Place at = place_of(i, (p.k.p + 1) / 2, (p.k.q + 1) / 2, p.packs);
  V pixel = {};
  if (at.row < p.k.h && at.column < p.k.w)
    pixel = reinterpret_cast<const V*>(
        p.x)[((at.n * p.k.h + at.row) * p.k.w + at.column) * p.packs + at.pack];
  auto v = floats_of(pixel);
#pragma unroll
  for (int k = 0; k < Pack; ++k) v.v[k] *= p.weight;
  pixel = rounded_to<T>(v);
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const int64_t row = 2 * at.row + t / 2, column = 2 * at.column + t % 2;
    if (row < p.k.p && column < p.k.q)
      reinterpret_cast<V*>(p.y)[((at.n * p.k.p + row) * p.k.q + column) * p.packs + at.pack] =
          pixel;
  }
}

// y[n, i, j, :] = weight * the sum of x[n, 2i + {0,1}, 2j + {0,1}, :].
// grid: one thread for Pack channels of a result.  sums: f32.  needs: C % Pack == 0, addresses
// aligned.
template <class T, int Pack>
__global__ __launch_bounds__(threads) void resample_gather2(
    const __grid_constant__ BlockParams<T> p) {
  begin();
  using V = Vec<T, Pack>;
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i >= p.count) return;
  const Place at = place_of(i, p.k.p, p.k.q, p.packs);
  const int64_t corner = ((at.n * p.k.h + 2 * at.row) * p.k.w + 2 * at.column) * p.packs + at.pack;
  V pixel[4];
#pragma unroll
  for (int t = 0; t < 4; ++t)
    pixel[t] = reinterpret_cast<const V*>(p.x)[corner + (t / 2 * p.k.w + t % 2) * p.packs];
  Vec<float, Pack> sum = {};
#pragma unroll
  for (int k = 0; k < Pack; ++k)
    sum.v[k] = p.weight * ((to_float(pixel[0].v[k]) + to_float(pixel[1].v[k])) +
                           (to_float(pixel[2].v[k]) + to_float(pixel[3].v[k])));
  reinterpret_cast<V*>(p.y)[i] = rounded_to<T>(sum);
}

// ---- host -----------------------------------------------------------------------------------

bool supports(const Signature& s, const Device&) { return is_float(s.in[0].dtype); }

Sizes sizes_of(const Signature& s) {
  const Shape &x = s.in[0].shape, &y = s.out[0].shape;
  return {x[0], x[1], x[2], y[1], y[2], x[3]};
}

int64_t most_taps(const AxisMap& m) {
  int64_t most = 0;
  for (size_t i = 0; i + 1 < m.first.size(); ++i)
    most = std::max(most, m.first[i + 1] - m.first[i]);
  return most;
}

// Rows of `width` taps.
void append(std::vector<Tap>& out, const AxisMap& m, int64_t width) {
  for (size_t i = 0; i < static_cast<size_t>(m.out); ++i) {
    const auto first = static_cast<size_t>(m.first[i]), last = static_cast<size_t>(m.first[i + 1]);
    for (size_t t = first; t < last; ++t)
      out.push_back({static_cast<int32_t>(m.index[t]), static_cast<float>(m.weight[t])});
    out.resize(out.size() + static_cast<size_t>(width) - (last - first));
  }
}

template <class T, int Pack>
auto tap_kernel(int64_t taps) {
  switch (taps) {
    case 1: return resample_taps<T, Pack, 1>;
    case 2: return resample_taps<T, Pack, 2>;
    case 4: return resample_taps<T, Pack, 4>;
    default: return resample_taps<T, Pack, 0>;
  }
}

// Both maps' taps in device memory, rows first.
struct Tables {
  Tensor taps;
  int64_t row_taps = 0, column_taps = 0, unrolled = 0;
};

Tables tables_of(const Signature& s, Device& device) {
  const AxisMap rows = axis_map(s, 0), columns = axis_map(s, 1);
  Tables t{{}, most_taps(rows), most_taps(columns), 0};
  const int64_t most = std::max(t.row_taps, t.column_taps);
  if (most <= 2 || (most <= 4 && std::min(t.row_taps, t.column_taps) > 2))
    t.unrolled = t.row_taps = t.column_taps = most <= 2 ? std::max<int64_t>(1, most) : 4;
  std::vector<Tap> all;
  append(all, rows, t.row_taps);
  append(all, columns, t.column_taps);
  static_assert(sizeof(Tap) == 8, "a tap is as large as an i64");
  const Tensor host(DType::i64, {static_cast<int64_t>(all.size())});
  if (!all.empty()) std::memcpy(host.raw(), all.data(), all.size() * sizeof(Tap));
  t.taps = Tensor(host.type(), device.allocate(host.bytes()));
  device.copy(host, t.taps);
  return t;
}

template <class T, int Pack>
void run_taps(const Sizes& k, const Tables& t, const Call& c, CudaDevice& device) {
  const auto* taps = static_cast<const Tap*>(t.taps.raw());
  const TapParams<T> p{.x = static_cast<const T*>(c.in[0]),
                       .y = static_cast<T*>(c.out[0]),
                       .rows = taps,
                       .columns = taps + k.p * t.row_taps,
                       .row_taps = static_cast<int>(t.row_taps),
                       .column_taps = static_cast<int>(t.column_taps),
                       .k = k,
                       .packs = k.c / Pack,
                       .count = k.n * k.p * k.q * k.c / Pack};
  launch("resample_taps", tap_kernel<T, Pack>(t.unrolled),
         {.grid = blocks_for(p.count, threads), .block = threads}, p, device);
}

Program prepare_taps(const Signature& s, const Tune&, Device& device) {
  return {.run = [k = sizes_of(s), t = tables_of(s, device), packs = s.aligned,
                  dtype = s.in[0].dtype, &device](const Call& c) {
    visit_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      packs&& k.c % wide<T> == 0 ? run_taps<T, wide<T>>(k, t, c, of(device))
                                 : run_taps<T, 1>(k, t, c, of(device));
    });
  }};
}

// The weight of a map that copies every sample to two, or adds two to one; else none.
std::optional<float> block_weight(const AxisMap& m, bool spread) {
  const int64_t few = spread ? m.in : m.out, many = spread ? m.out : m.in;
  if ((many != 2 * few && many != 2 * few + 1) || m.weight.empty()) return std::nullopt;
  for (int64_t i = 0; i < m.out; ++i) {
    const int64_t first = m.first[static_cast<size_t>(i)];
    const int64_t taps = m.first[static_cast<size_t>(i) + 1] - first;
    const int64_t wanted = !spread ? 2 : i < 2 * few ? 1 : 0;
    if (taps != wanted) return std::nullopt;
    for (int64_t t = 0; t < taps; ++t)
      if (m.index[static_cast<size_t>(first + t)] != (spread ? i / 2 : 2 * i + t) ||
          m.weight[static_cast<size_t>(first + t)] != m.weight[0])
        return std::nullopt;
  }
  return static_cast<float>(m.weight[0]);
}

struct Blocks {
  bool spread;
  float weight;
};

std::optional<Blocks> blocks_of(const Signature& s) {
  const AxisMap rows = axis_map(s, 0), columns = axis_map(s, 1);
  for (const bool spread : {true, false}) {
    const auto a = block_weight(rows, spread), b = block_weight(columns, spread);
    if (a && b) return Blocks{spread, *a * *b};
  }
  return std::nullopt;
}

bool supports_blocks(const Signature& s, const Device& device) {
  return supports(s, device) && blocks_of(s).has_value();
}

template <class T, int Pack>
void run_blocks(const Sizes& k, const Blocks& b, const Call& c, CudaDevice& device) {
  const int64_t cells = b.spread ? ((k.p + 1) / 2) * ((k.q + 1) / 2) : k.p * k.q;
  const BlockParams<T> p{.x = static_cast<const T*>(c.in[0]),
                         .y = static_cast<T*>(c.out[0]),
                         .k = k,
                         .packs = k.c / Pack,
                         .count = k.n * cells * k.c / Pack,
                         .weight = b.weight};
  launch("resample_blocks", b.spread ? resample_spread2<T, Pack> : resample_gather2<T, Pack>,
         {.grid = blocks_for(p.count, threads), .block = threads}, p, device);
}

Program prepare_blocks(const Signature& s, const Tune&, Device& device) {
  return {.run = [k = sizes_of(s), b = *blocks_of(s), packs = s.aligned, dtype = s.in[0].dtype,
                  &device](const Call& c) {
    visit_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      packs&& k.c % wide<T> == 0 ? run_blocks<T, wide<T>>(k, b, c, of(device))
                                 : run_blocks<T, 1>(k, b, c, of(device));
    });
  }};
}

}  // namespace

std::vector<Kernel> resample() {
  return {{.op = "resample",
           .name = "resample_blocks",
           .supports = supports_blocks,
           .prepare = prepare_blocks,
           .cost = roofline<100, 80>},
          {.op = "resample",
           .name = "resample_taps",
           .supports = supports,
           .prepare = prepare_taps,
           .cost = roofline<100, 50>}};
}

}  // namespace ebb::ops::cuda
