// attention on sm_90a: which kernel a use of the op takes, and its launch.
#include <algorithm>
#include <utility>

#include "backend/cuda/launch.h"
#include "backend/cuda/work_split.h"
#include "ops/prim/attention/cuda_sizes.cuh"
#include "ops/prim/attention/cuda_sm90.cuh"
#include "ops/prim/attention/cuda_sm90.h"
#include "ops/prim/attention/cuda_tma_boxes.cuh"

namespace ebb::ops::cuda {

std::vector<Kernel> attention();

namespace {

constexpr int64_t kWidest = 256, kWidestMasked = 128;

std::vector<Sm90Kernel> kernels(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  const bool bf16 = s.in[0].dtype == DType::bf16;
  if (z.plain()) return bf16 ? sm90_kernels_bf16(z.k) : sm90_kernels_f16(z.k);
  return bf16 ? sm90_masked_kernels_bf16(z.k) : sm90_masked_kernels_f16(z.k);
}

bool supports(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  constexpr int64_t most_tiles = int64_t{1} << 30;
  return on_tensor_cores(s, device, z.plain() ? kWidest : kWidestMasked) && !z.bias &&
         of(device).capability() == 90 && z.n * z.a > 0 && z.t > 0 &&
         z.n * z.a * (z.t / 64 + 1) < most_tiles;
}

int64_t parts(const Sm90Kernel& k, const AttentionSizes& z) { return ceil_div(z.t, k.rows); }

// How the tiles are cut where the last of them would leave SMs idle: into ranges of
// keys, which a second kernel joins.
struct Cut {
  int64_t whole = 0, ranges = 1, units = 0;
  double time = 0;  // relative: of the busiest SM
};
Cut cut(const Sm90Kernel& k, const AttentionSizes& z, int places, int64_t ranges) {
  const int64_t tiles = z.n * z.a * parts(k, z), blocks = ceil_div(z.s, k.keys);
  constexpr double start_and_end = 128, join = 80e3;  // of a tile, in keys; of all, for a query too
  const auto turns = [&](int64_t count, int64_t keys) {
    const double of_one = static_cast<double>(keys * k.keys) * k.cost + start_and_end;
    return static_cast<double>(ceil_div(count, places) * k.rows) * of_one;
  };
  if (ranges == 1) return {tiles, 1, tiles, turns(tiles, blocks)};
  const int64_t whole = tiles / places * places, cuts = (tiles - whole) * ranges;
  const double time = turns(whole, blocks) + turns(cuts, ceil_div(blocks, ranges));
  return {whole, ranges, whole + cuts, time + join};
}

// The best number of ranges; 1: none, whole tiles are as good.
int64_t best_ranges(const Sm90Kernel& k, const AttentionSizes& z, int places) {
  constexpr int64_t most = 8;
  int64_t best = 1;
  for (int64_t r = 2; r <= most && 2 * r <= ceil_div(z.s, k.keys); ++r)
    if (cut(k, z, places, r).time < cut(k, z, places, best).time) best = r;
  return best;
}

std::vector<Tune> space(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const int places = of(device).sm_count();
  std::vector<std::pair<double, Tune>> all;
  for (const Sm90Kernel& k : kernels(s)) {
    const int64_t ranges = k.join ? best_ranges(k, z, places) : 1;
    if (k.join && ranges == 1) continue;
    Tune tune{{{"queries", k.rows}, {"keys", k.keys}}};
    if (ranges > 1) tune.values.emplace_back("ranges", ranges);
    all.emplace_back(cut(k, z, places, ranges).time, std::move(tune));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Tune> tunes;
  for (auto& [time, tune] : all) tunes.push_back(std::move(tune));
  return tunes;
}

Program prepare(const Signature& s, const Tune& tune, Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const DType dtype = s.in[0].dtype;
  CudaDevice& d = of(device);
  const Tune best = tune.values.empty() ? space(s, device).front() : tune;
  const int64_t ranges = best.value("ranges", 1);
  Sm90Kernel k;
  for (const Sm90Kernel& one : kernels(s))
    if (one.rows == best.value("queries", 0) && one.keys == best.value("keys", 0) &&
        (one.join != nullptr) == (ranges > 1))
      k = one;
  require(k.run != nullptr && ranges > 0 && ranges <= ceil_div(z.s, k.keys),
          "attention: there is no such choice of the tuner  at ", s.at);
  const Program general = attention().back().prepare(s, {}, device);
  Sm90Params p{};
  p.f.z = head_sizes(z);
  p.f.mask = mask_of(z, s);
  p.f.parts = static_cast<int>(parts(k, z));
  const Cut c = cut(k, z, d.sm_count(), ranges);
  require(ranges == 1 || c.units > c.whole,
          "attention: no tiles are left to cut into ranges of keys (ranges ", ranges, ", tiles ",
          c.whole, ")  at ", s.at);
  p.whole = static_cast<int>(c.whole), p.ranges = static_cast<int>(c.ranges);
  p.units = static_cast<int>(c.units);
  const Launch launch{.grid = static_cast<unsigned>(std::min<int64_t>(c.units, d.sm_count())),
                      .block = static_cast<unsigned>(k.threads),
                      .shared = k.bytes};
  const int64_t row_groups = (c.units - c.whole) * k.rows, sums_bytes = row_groups * k.width * 4;
  const Launch join{.grid = static_cast<unsigned>((c.units - c.whole) / c.ranges * (k.rows / 64)),
                    .block = 128};
  const auto run = [=, &d](const Call& given) {
    const Call call = unpacked(z, dtype, given);
    if (!all_aligned({call.in[0], call.in[1], call.in[2], call.out[0]})) return general.run(given);
    Sm90Params own = p;
    own.q = map_of(p.f.z, dtype, {call.in[0], z.t, z.step(), 64});
    own.k = map_of(p.f.z, dtype, {call.in[1], z.s, z.step(), k.keys});
    own.v = map_of(p.f.z, dtype, {call.in[2], z.s, z.step(), k.keys});
    if (k.rest) {
      constexpr int columns = 16;
      own.q_rest = map_of(p.f.z, dtype, {call.in[0], z.t, z.step(), 64, columns});
      own.k_rest = map_of(p.f.z, dtype, {call.in[1], z.s, z.step(), k.keys, columns});
      own.v_rest = map_of(p.f.z, dtype, {call.in[2], z.s, z.step(), k.keys, columns});
      own.o = map_of(p.f.z, dtype, {call.out[0], z.t, z.out_step(), 64});
      own.o_rest = map_of(p.f.z, dtype, {call.out[0], z.t, z.out_step(), 64, columns});
    }
    own.f.q = call.in[0], own.f.k = call.in[1], own.f.v = call.in[2];
    own.f.mask = mask_of(p.f.mask, z, call);
    own.f.o = call.out[0], own.f.lse = static_cast<float*>(call.out[1]);
    own.sums = static_cast<float4*>(call.workspace);
    own.rows = reinterpret_cast<float2*>(static_cast<char*>(call.workspace) + sums_bytes);
    ebb::cuda::launch("attention_sm90", k.run, launch, own, d);
    if (k.join != nullptr) ebb::cuda::launch("attention_sm90_ranges", k.join, join, own, d);
  };
  return {.workspace = std::max(general.workspace, sums_bytes + row_groups * 8), .run = run};
}

}  // namespace

std::vector<Kernel> attention_sm90() {
  return {{.op = "attention",
           .name = "attention_sm90",
           .supports = supports,
           .prepare = prepare,
           .space = space}};
}

}  // namespace ebb::ops::cuda
