// attention of heads 264 to 512 wide on sm_90a: split-KV and launches.
#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
#include "ir/roofline.h"
#include "ops/prim/attention/cuda/sm90/bind.cuh"
#include "ops/prim/attention/cuda/sm90/launch.h"
#include "ops/prim/attention/cuda/sm90/wide.cuh"

namespace ebb::ops::cuda {

namespace {

using S = WideShape;
constexpr int64_t kMostBlocks = int64_t{1} << 30, kMaxSplits = 8;

// Query tiles per head, a multiple of the cluster size.
int64_t query_tiles(const AttentionSizes& z) { return 2 * ceil_div(z.t, 2 * S::queries); }

bool supports(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  return on_sm90(s, device, S::width) && z.plain() && z.k > 256 &&
         z.n * z.a * query_tiles(z) * kMaxSplits < kMostBlocks;
}

// Numbers of splits, fastest first. Times are in key blocks (3.3 us on the H200): prologue and
// epilogue of a tile take one, combining splits takes two and the memory traffic of the partials.
std::vector<Tune> space(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const int64_t slots = of(device).sm_count() / 2 * 2;
  const int64_t tiles = z.n * z.a * query_tiles(z), blocks = ceil_div(z.s, S::keys);
  const double bytes = static_cast<double>(z.n * z.a * z.t) * static_cast<double>(z.k * 8);
  const auto time = [&](int64_t splits) {
    const auto waves = static_cast<double>(ceil_div(tiles * splits, slots));
    const double combine = splits > 1 ? 2 + bytes * static_cast<double>(splits) / 10e6 : 0;
    return waves * (static_cast<double>(ceil_div(blocks, splits)) + 1) + combine;
  };
  std::vector<int64_t> all;
  for (int64_t r = 1; r <= std::min(blocks, kMaxSplits); ++r) all.push_back(r);
  std::stable_sort(all.begin(), all.end(), [&](int64_t a, int64_t b) { return time(a) < time(b); });
  std::vector<Tune> tunes;
  for (const int64_t r : all)
    if (tunes.size() < 3) tunes.push_back({{{"splits", r}}});
  return tunes;
}

void run_wide(DType dtype, WideParams p, CudaDevice& d) {
  const HeadSizes& z = p.f.z;
  const Launch launch{.grid = static_cast<unsigned>(z.heads * p.f.query_blocks * p.splits),
                      .block = S::threads,
                      .shared = S::bytes,
                      .cluster = 2};
  const Launch combine{.grid = blocks_for(z.heads * z.t * (z.width / 8), 256), .block = 256};
  const auto both = [&](auto zero) {
    using T = decltype(zero);
    ebb::cuda::launch("attention_sm90_wide", attention_sm90_wide<T>, launch, p, d);
    if (p.splits > 1)
      ebb::cuda::launch("attention_sm90_wide_combine", attention_sm90_wide_combine<T>, combine, p,
                        d);
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
  const int64_t splits = best.value("splits", 0);
  require(splits > 0 && splits <= std::min(kMaxSplits, ceil_div(z.s, S::keys)),
          "attention: there is no such choice of the tuner  at ", s.at);
  WideParams p{};
  p.f.z = head_sizes(z);
  p.f.query_blocks = static_cast<int>(query_tiles(z));
  p.splits = static_cast<int>(splits);
  const int64_t rows = splits > 1 ? splits * z.n * z.a * z.t : 0;
  const int64_t partial_bytes = rows * z.k * 4;
  const auto run = [=, &d](const Call& given) {
    const Call call = unpacked(z, dtype, given);
    WideParams own = p;
    bind(own, z, dtype, call, {S::queries, S::keys / 2, S::values});
    own.o_partial = static_cast<float*>(call.workspace);
    own.row_stats = reinterpret_cast<float2*>(static_cast<char*>(call.workspace) + partial_bytes);
    run_wide(dtype, own, d);
  };
  return {.workspace = partial_bytes + rows * 8, .run = run};
}

}  // namespace

std::vector<Kernel> attention_sm90_wide() {
  return {{.op = "attention",
           .name = "attention_sm90_wide",
           .supports = supports,
           .prepare = prepare,
           .space = space,
           .cost = roofline<50, 50>}};
}

}  // namespace ebb::ops::cuda
