// attention on sm_90a: selection and launch of the wgmma kernels.
#include <algorithm>
#include <utility>

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
#include "ir/roofline.h"
#include "ops/prim/attention/cuda/sm90/bind.cuh"
#include "ops/prim/attention/cuda/sm90/launch.h"
#include "ops/prim/attention/cuda/sm90/split_kv.cuh"

namespace ebb::ops::cuda {

namespace {

constexpr int64_t kWidest = 256, kWidestMasked = 128;

std::vector<Sm90Kernel> kernels(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  const bool bf16 = s.in[0].dtype == DType::bf16;
  if (z.plain()) return bf16 ? sm90_kernels_bf16(z.k) : sm90_kernels_f16(z.k);
  return bf16 ? sm90_masked_kernels_bf16(z.k) : sm90_masked_kernels_f16(z.k);
}

bool supports(const Signature& s, const Device& device) {
  return on_sm90(s, device, attention_sizes(s).plain() ? kWidest : kWidestMasked);
}

int64_t query_tiles(const Sm90Kernel& k, const AttentionSizes& z) { return ceil_div(z.t, k.rows); }

// Split-KV for the partial last wave: its tiles are divided along the keys, and a second kernel
// combines the splits.
struct Schedule {
  int64_t full_tiles = 0, splits = 1, work_units = 0;
  double time = 0;  // of the busiest SM, relative
};
Schedule schedule(const Sm90Kernel& k, const AttentionSizes& z, int slots, int64_t splits) {
  const int64_t tiles = z.n * z.a * query_tiles(k, z), blocks = ceil_div(z.s, k.keys);
  constexpr double start_and_end = 128,
                   combine = 80e3;  // per tile, in keys; of the second kernel, in keys x queries
  const auto waves_time = [&](int64_t count, int64_t keys) {
    const double of_one = static_cast<double>(keys * k.keys) * k.cost + start_and_end;
    return static_cast<double>(ceil_div(count, slots) * k.rows) * of_one;
  };
  if (splits == 1) return {tiles, 1, tiles, waves_time(tiles, blocks)};
  const int64_t full_tiles = tiles / slots * slots, split_units = (tiles - full_tiles) * splits;
  const double time =
      waves_time(full_tiles, blocks) + waves_time(split_units, ceil_div(blocks, splits));
  return {full_tiles, splits, full_tiles + split_units, time + combine};
}

// The best number of splits; 1: splitting does not pay.
int64_t best_splits(const Sm90Kernel& k, const AttentionSizes& z, int slots) {
  constexpr int64_t most = 8;
  int64_t best = 1;
  for (int64_t r = 2; r <= most && 2 * r <= ceil_div(z.s, k.keys); ++r)
    if (schedule(k, z, slots, r).time < schedule(k, z, slots, best).time) best = r;
  return best;
}

std::vector<Tune> space(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const int slots = of(device).sm_count();
  std::vector<std::pair<double, Tune>> all;
  for (const Sm90Kernel& k : kernels(s)) {
    const int64_t splits = k.combine ? best_splits(k, z, slots) : 1;
    if (k.combine && splits == 1) continue;
    Tune tune{{{"queries", k.rows}, {"keys", k.keys}}};
    if (splits > 1) tune.values.emplace_back("splits", splits);
    all.emplace_back(schedule(k, z, slots, splits).time, std::move(tune));
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
  const int64_t splits = best.value("splits", 1);
  Sm90Kernel k;
  for (const Sm90Kernel& one : kernels(s))
    if (one.rows == best.value("queries", 0) && one.keys == best.value("keys", 0) &&
        (one.combine != nullptr) == (splits > 1))
      k = one;
  require(k.run != nullptr && splits > 0 && splits <= ceil_div(z.s, k.keys),
          "attention: there is no such choice of the tuner  at ", s.at);
  Sm90Params p{};
  p.f.z = head_sizes(z);
  p.f.mask = mask_of(z, s);
  p.f.query_blocks = static_cast<int>(query_tiles(k, z));
  const Schedule c = schedule(k, z, d.sm_count(), splits);
  require(splits == 1 || c.work_units > c.full_tiles,
          "attention: no tiles are left to cut into splits of keys (splits ", splits, ", tiles ",
          c.full_tiles, ")  at ", s.at);
  p.full_tiles = static_cast<int>(c.full_tiles), p.splits = static_cast<int>(c.splits);
  p.work_units = static_cast<int>(c.work_units);
  const Launch launch{.grid = static_cast<unsigned>(std::min<int64_t>(c.work_units, d.sm_count())),
                      .block = static_cast<unsigned>(k.threads),
                      .shared = k.bytes};
  const int64_t partial_rows = (c.work_units - c.full_tiles) * k.rows,
                partial_bytes = partial_rows * k.width * 4;
  const Launch combine{
      .grid = static_cast<unsigned>((c.work_units - c.full_tiles) / c.splits * (k.rows / 64)),
      .block = 128};
  const auto run = [=, &d](const Call& given) {
    const Call call = unpacked(z, dtype, given);
    Sm90Params own = p;
    bind(own, z, dtype, call, {64, k.keys, k.keys});
    if (k.tail) {
      constexpr int columns = 16;
      own.q_tail = map_of(p.f.z, dtype, {call.in[0], z.t, p.f.z.q, 64, columns});
      own.k_tail = map_of(p.f.z, dtype, key_boxes(p.f.z, p.f.z.k, call.in[1], k.keys, columns));
      own.v_tail = map_of(p.f.z, dtype, key_boxes(p.f.z, p.f.z.v, call.in[2], k.keys, columns));
      own.o = map_of(p.f.z, dtype, {call.out[0], z.t, p.f.z.o, 64});
      own.o_tail = map_of(p.f.z, dtype, {call.out[0], z.t, p.f.z.o, 64, columns});
    }
    own.o_partial = static_cast<float4*>(call.workspace);
    own.row_stats = reinterpret_cast<float2*>(static_cast<char*>(call.workspace) + partial_bytes);
    ebb::cuda::launch("attention_sm90", k.run, launch, own, d);
    if (k.combine != nullptr)
      ebb::cuda::launch("attention_sm90_combine", k.combine, combine, own, d);
  };
  return {.workspace = partial_bytes + partial_rows * 8, .run = run};
}

}  // namespace

std::vector<Kernel> attention_sm90() {
  return {{.op = "attention",
           .name = "attention_sm90",
           .supports = supports,
           .prepare = prepare,
           .space = space,
           .cost = roofline<65, 60>}};
}

}  // namespace ebb::ops::cuda
