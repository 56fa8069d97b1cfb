// attention on sm_90a: which kernel a use of the op takes, and its launch.
#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/tma.h"
#include "ops/prim/attention/cuda_sizes.cuh"
#include "ops/prim/attention/cuda_sm90.cuh"
#include "ops/prim/attention/cuda_sm90.h"

namespace ebb::ops::cuda {

std::vector<Kernel> attention();

namespace {

constexpr int64_t kWidest = 256;

std::vector<Sm90Kernel> kernels(const Signature& s) {
  const int64_t width = attention_sizes(s).k;
  return s.in[0].dtype == DType::bf16 ? sm90_kernels_bf16(width) : sm90_kernels_f16(width);
}

bool supports(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  constexpr int64_t most_tiles = int64_t{1} << 30;
  return on_tensor_cores(s, device, kWidest) && of(device).capability() == 90 && z.n * z.a > 0 &&
         z.t > 0 && z.n * z.a * (z.t / 64 + 1) < most_tiles;
}

int64_t parts(const Sm90Kernel& k, const AttentionSizes& z) { return (z.t + k.rows - 1) / k.rows; }

// Relative: what the busiest multiprocessor has to do.
double time(const Sm90Kernel& k, const AttentionSizes& z, int places) {
  const int64_t tiles = z.n * z.a * parts(k, z), turns = (tiles + places - 1) / places;
  const int64_t blocks = (z.s + k.keys - 1) / k.keys;
  constexpr double start_and_end = 128;  // of a tile, in keys
  return static_cast<double>(turns * k.rows) *
         (static_cast<double>(blocks * k.keys) * k.cost + start_and_end);
}

std::vector<Tune> space(const Signature& s, const Device& device) {
  const AttentionSizes z = attention_sizes(s);
  std::vector<Sm90Kernel> all = kernels(s);
  const int places = of(device).multiprocessors();
  std::stable_sort(all.begin(), all.end(), [&](const Sm90Kernel& a, const Sm90Kernel& b) {
    return time(a, z, places) < time(b, z, places);
  });
  std::vector<Tune> tunes;
  for (const Sm90Kernel& k : all) tunes.push_back({{{"queries", k.rows}, {"keys", k.keys}}});
  return tunes;
}

// Boxes of `box` rows and `columns` columns.
CUtensorMap rows_map(const void* data, DType dtype, const AttentionSizes& z, int64_t rows, int box,
                     int columns = 64) {
  TmaTensor t{.data = data, .format = dtype == DType::bf16 ? Format::bf16 : Format::f16, .rank = 4};
  t.size = {z.k, rows, z.a, z.n};
  t.stride = {z.a * z.k, z.k, rows * z.a * z.k};
  return tiled_map(t, {.inner = columns, .outer = box});
}

Program prepare(const Signature& s, const Tune& tune, Device& device) {
  const AttentionSizes z = attention_sizes(s);
  const DType dtype = s.in[0].dtype;
  CudaDevice& d = of(device);
  const Tune best = tune.values.empty() ? space(s, device).front() : tune;
  Sm90Kernel k;
  for (const Sm90Kernel& one : kernels(s))
    if (one.rows == best.value("queries", 0) && one.keys == best.value("keys", 0)) k = one;
  require(k.run != nullptr, "attention: there is no such choice of the tuner  at ", s.at);
  const Program general = attention().back().prepare(s, {}, device);
  Sm90Params p{};
  p.f.z = head_sizes(z);
  p.f.parts = static_cast<int>(parts(k, z));
  const auto tiles = std::min<int64_t>(p.f.z.heads * p.f.parts, d.multiprocessors());
  const Launch launch{.grid = static_cast<unsigned>(tiles),
                      .block = static_cast<unsigned>(k.threads),
                      .shared = k.bytes};
  const auto run = [=, &d](const Call& call) {
    if (!all_aligned({call.in[0], call.in[1], call.in[2], call.out[0]})) return general.run(call);
    Sm90Params own = p;
    own.q = rows_map(call.in[0], dtype, z, z.t, 64);
    own.k = rows_map(call.in[1], dtype, z, z.s, k.keys);
    own.v = rows_map(call.in[2], dtype, z, z.s, k.keys);
    if (k.rest) {
      constexpr int columns = 16;
      own.q_rest = rows_map(call.in[0], dtype, z, z.t, 64, columns);
      own.k_rest = rows_map(call.in[1], dtype, z, z.s, k.keys, columns);
      own.v_rest = rows_map(call.in[2], dtype, z, z.s, k.keys, columns);
      own.o = rows_map(call.out[0], dtype, z, z.t, 64);
      own.o_rest = rows_map(call.out[0], dtype, z, z.t, 64, columns);
    }
    own.f.q = call.in[0], own.f.k = call.in[1], own.f.v = call.in[2];
    own.f.o = call.out[0], own.f.lse = static_cast<float*>(call.out[1]);
    ebb::cuda::launch("attention_sm90", k.run, launch, own, d);
  };
  return {.workspace = general.workspace, .run = run};
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
