// attention of heads 264 to 512 wide on sm_90a: how the keys are cut, and launches.
#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/work_split.h"
#include "ops/prim/attention/cuda_sizes.cuh"
#include "ops/prim/attention/cuda_sm90.h"
#include "ops/prim/attention/cuda_sm90_wide.cuh"
#include "ops/prim/attention/cuda_tma_boxes.cuh"

namespace ebb::ops::cuda {

std::vector<Kernel> attention();

namespace {

using S = WideShape;
constexpr int64_t kMostBlocks = int64_t{1} << 30, kMostRanges = 8;

// Tiles of queries of a head: whole pairs.
int64_t parts(const AttentionSizes& z) { return 2 * ceil_div(z.t, 2 * S::queries); }

bool supports(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  return on_tensor_cores(s, device, S::width) && z.plain() && z.k > 256 &&
         of(device).capability() == 90 && z.n * z.a > 0 && z.t > 0 &&
         z.n * z.a * parts(z) * kMostRanges < kMostBlocks;
}

// How many ranges of keys take the least time, in blocks of keys (3.3 us on the H200): a tile
// begins and ends in one, joining ranges takes two and what moves the sums through memory.
std::vector<Tune> space(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const int64_t places = of(device).sm_count() / 2 * 2;
  const int64_t tiles = z.n * z.a * parts(z), blocks = ceil_div(z.s, S::keys);
  const double bytes = static_cast<double>(z.n * z.a * z.t) * static_cast<double>(z.k * 8);
  const auto time = [&](int64_t ranges) {
    const auto turns = static_cast<double>(ceil_div(tiles * ranges, places));
    const double join = ranges > 1 ? 2 + bytes * static_cast<double>(ranges) / 10e6 : 0;
    return turns * (static_cast<double>(ceil_div(blocks, ranges)) + 1) + join;
  };
  std::vector<int64_t> all;
  for (int64_t r = 1; r <= std::min(blocks, kMostRanges); ++r) all.push_back(r);
  std::stable_sort(all.begin(), all.end(), [&](int64_t a, int64_t b) { return time(a) < time(b); });
  std::vector<Tune> tunes;
  for (const int64_t r : all)
    if (tunes.size() < 3) tunes.push_back({{{"ranges", r}}});
  return tunes;
}

void run_wide(DType dtype, WideParams p, CudaDevice& d) {
  const HeadSizes& z = p.f.z;
  const Launch launch{.grid = static_cast<unsigned>(z.heads * p.f.parts * p.ranges),
                      .block = S::threads,
                      .shared = S::bytes,
                      .cluster = 2};
  const Launch join{.grid = blocks_for(z.heads * z.t * (z.width / 8), 256), .block = 256};
  const auto both = [&](auto zero) {
    using T = decltype(zero);
    ebb::cuda::launch("attention_sm90_wide", attention_sm90_wide<T>, launch, p, d);
    if (p.ranges > 1) ebb::cuda::launch("attention_sm90_join", attention_sm90_join<T>, join, p, d);
  };
  if (dtype == DType::bf16)
    both(__nv_bfloat16{});
  else
    both(__half{});
}

Program prepare(const Signature& s, const Tune& tune, Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const DType dtype = s.in[0].dtype;
  CudaDevice& d = of(device);
  const Tune best = tune.values.empty() ? space(s, device).front() : tune;
  const int64_t ranges = best.value("ranges", 0);
  require(ranges > 0 && ranges <= std::min(kMostRanges, ceil_div(z.s, S::keys)),
          "attention: there is no such choice of the tuner  at ", s.at);
  const Program general = attention().back().prepare(s, {}, device);
  WideParams p{};
  p.f.z = head_sizes(z);
  p.f.parts = static_cast<int>(parts(z));
  p.ranges = static_cast<int>(ranges);
  const int64_t rows = ranges > 1 ? ranges * z.n * z.a * z.t : 0;
  const int64_t sums_bytes = rows * z.k * 4;
  const auto run = [=, &d](const Call& given) {
    const Call call = unpacked(z, dtype, given);
    if (!all_aligned({call.in[0], call.in[1], call.in[2], call.out[0]})) return general.run(given);
    WideParams own = p;
    own.q = map_of(p.f.z, dtype, {call.in[0], z.t, z.step(), S::queries});
    own.k = map_of(p.f.z, dtype, {call.in[1], z.s, z.step(), S::keys / 2});
    own.v = map_of(p.f.z, dtype, {call.in[2], z.s, z.step(), S::values});
    own.f.o = call.out[0], own.f.lse = static_cast<float*>(call.out[1]);
    own.sums = static_cast<float*>(call.workspace);
    own.rows = reinterpret_cast<float2*>(static_cast<char*>(call.workspace) + sums_bytes);
    run_wide(dtype, own, d);
  };
  return {.workspace = std::max(general.workspace, sums_bytes + rows * 8), .run = run};
}

}  // namespace

std::vector<Kernel> attention_sm90_wide() {
  return {{.op = "attention",
           .name = "attention_sm90_wide",
           .supports = supports,
           .prepare = prepare,
           .space = space}};
}

}  // namespace ebb::ops::cuda
