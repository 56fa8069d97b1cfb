#include "ops/prim/attention_grad/cuda/gemms.cuh"

#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul();

namespace {

constexpr int kSoftmaxThreads = 256;
constexpr int64_t kMaxScoreBytes = int64_t{256} << 20;  // bytes of scores in memory at a time
constexpr int64_t kScoreBytes = 12;                     // per query and key: s, dp, p and ds

// Rows of scores: `rows` queries of each sample from `first` on, by all keys.
struct SoftmaxGradParams {
  const float *s, *dp, *lse_log2, *delta;  // lse_log2 and delta: samples are `pitch` apart
  void *p, *ds;
  int64_t pitch;
  int first, rows, keys, blocks_per_row;  // blocks_per_row: thread blocks
  float scale, scale_log2;
};

// p = exp(scale s - lse) and ds = scale p (dp - delta); V keys per thread.
// grid: p.blocks_per_row thread blocks per row.  deterministic: yes.
template <class T, int V>
__global__ __launch_bounds__(kSoftmaxThreads) void attention_grad_softmax(
    const __grid_constant__ SoftmaxGradParams p) {
  begin();
  const int64_t row = blockIdx.x / p.blocks_per_row;
  const int key =
      static_cast<int>(blockIdx.x % p.blocks_per_row * kSoftmaxThreads + threadIdx.x) * V;
  if (key >= p.keys) return;
  const int64_t query = row / p.rows * p.pitch + p.first + row % p.rows;
  const float lse_log2 = p.lse_log2[query], delta = p.delta[query];
  const int64_t at = row * p.keys + key;
  const auto s = *reinterpret_cast<const Vec<float, V>*>(p.s + at);
  const auto dp = *reinterpret_cast<const Vec<float, V>*>(p.dp + at);
  Vec<T, V> weight, ds;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const float w = fast_exp2(fmaf(s.v[i], p.scale_log2, -lse_log2));
    weight.v[i] = from_float<T>(w);
    ds.v[i] = from_float<T>(p.scale * w * (dp.v[i] - delta));
  }
  *reinterpret_cast<Vec<T, V>*>(static_cast<T*>(p.p) + at) = weight;
  *reinterpret_cast<Vec<T, V>*>(static_cast<T*>(p.ds) + at) = ds;
}

int64_t padded(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

Program gemm(const Matmul& attrs, std::vector<Type> in, Device& device) {
  Signature s{&def::matmul(), attrs, std::move(in), {}, "attention_grad"};
  s.out = s.op->infer(s);
  for (const Kernel& k : matmul())
    if (k.supports(s, device))
      return k.prepare(s, k.space ? k.space(s, device).front() : Tune{}, device);
  fail("attention_grad: no kernel for a GEMM  ", s.text());
}

// Queries [row, row + rows) of some samples. dk and dv are accumulated over the chunks of a sample,
// in f32 until the last one.
struct QueryChunk {
  int64_t sample = 0, samples = 1, row = 0, rows = 0;
  bool starts = true, ends = true;
  Program scores, queries, keys;  // s and dp; dq; dk and dv
};

void prepare_chunk(QueryChunk& chunk, const HeadSizes& z, DType dtype, Device& device) {
  const Type rows{dtype, {chunk.samples, chunk.rows, z.width}};
  const Type keys{dtype, {chunk.samples, z.s, z.width}};
  const Type weights{dtype, {chunk.samples, chunk.rows, z.s}};
  std::vector<Type> sums{weights, rows};
  if (!chunk.starts) sums.push_back({DType::f32, keys.shape});
  chunk.scores = gemm({.trans_b = true, .dtype = DType::f32}, {rows, keys}, device);
  chunk.queries = gemm({}, {weights, keys}, device);
  chunk.keys =
      gemm({.trans_a = true, .dtype = chunk.ends ? ResultDType() : DType::f32}, sums, device);
}

// As many samples as fit into kMaxScoreBytes, or chunks of the queries of one.
std::vector<QueryChunk> chunks_of(const HeadSizes& z, DType dtype, Device& device) {
  const int64_t max_scores = kMaxScoreBytes / kScoreBytes, all = int64_t{z.t} * z.s;
  const int64_t samples = std::clamp<int64_t>(max_scores / all, 1, z.heads);
  const int64_t splits = std::clamp<int64_t>(ceil_div(all, max_scores), 1, ceil_div(z.t, 64));
  const int64_t rows = ceil_div(ceil_div(z.t, splits), 64) * 64;
  std::vector<QueryChunk> chunks;
  for (int64_t n = 0; n < z.heads; n += samples)
    for (int64_t row = 0; row < z.t; row += rows) {
      QueryChunk p{.sample = n, .samples = std::min(samples, z.heads - n), .row = row};
      p.rows = std::min(rows, z.t - row);
      p.starts = row == 0, p.ends = row + rows >= z.t;
      const auto same = std::find_if(chunks.begin(), chunks.end(), [&](const QueryChunk& o) {
        return o.samples == p.samples && o.rows == p.rows && o.starts == p.starts &&
               o.ends == p.ends;
      });
      if (same == chunks.end())
        prepare_chunk(p, z, dtype, device);
      else
        p.scores = same->scores, p.queries = same->queries, p.keys = same->keys;
      chunks.push_back(std::move(p));
    }
  return chunks;
}

// Workspace offsets.
struct Offsets {
  int64_t s, dp, p, ds, dkv_accum[2][2], gemms, bytes;  // dkv_accum: double buffer, dk and dv
};

Offsets offsets_of(const HeadSizes& z, const std::vector<QueryChunk>& chunks) {
  int64_t weights = 0, gemms = 0;
  for (const QueryChunk& p : chunks) {
    weights = std::max(weights, p.samples * p.rows * z.s);
    gemms = std::max({gemms, p.scores.workspace, p.queries.workspace, p.keys.workspace});
  }
  Offsets at{};
  const auto reserve = [&](int64_t& to, int64_t bytes) {
    to = at.bytes, at.bytes += padded(bytes);
  };
  reserve(at.s, weights * 4), reserve(at.dp, weights * 4);
  reserve(at.p, weights * 2), reserve(at.ds, weights * 2);
  const int64_t accum = chunks.empty() || chunks[0].ends ? 0 : int64_t{z.s} * z.width * 4;
  for (auto& buffer : at.dkv_accum)
    for (int64_t& to : buffer) reserve(to, accum);
  reserve(at.gemms, gemms);
  return at;
}

struct Run {
  const HeadSizes& z;
  DType dtype;
  const GradParams& p;
  char* workspace;
  CudaDevice& device;
};

void launch_softmax_grad(const Run& r, const QueryChunk& chunk, const Offsets& at) {
  const int v = r.z.s % 4 == 0 ? 4 : 1;
  SoftmaxGradParams w{.s = reinterpret_cast<const float*>(r.workspace + at.s),
                      .dp = reinterpret_cast<const float*>(r.workspace + at.dp),
                      .lse_log2 = r.p.lse_log2 + chunk.sample * r.p.pitch,
                      .delta = r.p.delta + chunk.sample * r.p.pitch,
                      .p = r.workspace + at.p,
                      .ds = r.workspace + at.ds,
                      .pitch = r.p.pitch};
  w.first = static_cast<int>(chunk.row), w.rows = static_cast<int>(chunk.rows), w.keys = r.z.s;
  w.blocks_per_row = static_cast<int>(ceil_div(r.z.s, kSoftmaxThreads * v));
  w.scale = r.z.scale, w.scale_log2 = r.z.scale_log2;
  const Launch launch{.grid = static_cast<unsigned>(chunk.samples * chunk.rows * w.blocks_per_row),
                      .block = kSoftmaxThreads};
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    ebb::cuda::launch("attention_grad_softmax",
                      v == 4 ? attention_grad_softmax<T, 4> : attention_grad_softmax<T, 1>, launch,
                      w, r.device);
  };
  if (r.dtype == DType::bf16)
    run(__nv_bfloat16{});
  else
    run(__half{});
}

// `index`: number of the chunk within its sample.
void run_chunk(const Run& r, const QueryChunk& chunk, const Offsets& at, int index) {
  const auto of = [&](const void* tensor, int64_t row) {
    return static_cast<char*>(const_cast<void*>(tensor)) + row * r.z.width * 2;
  };
  const int64_t query = chunk.sample * r.z.t + chunk.row, key = chunk.sample * r.z.s;
  char* const w = r.workspace;
  void *const q = of(r.p.q, query), *const dout = of(r.p.dout, query), *const k = of(r.p.k, key);
  chunk.scores.run({{q, k}, {w + at.s}, w + at.gemms});
  chunk.scores.run({{dout, of(r.p.v, key)}, {w + at.dp}, w + at.gemms});
  launch_softmax_grad(r, chunk, at);
  chunk.queries.run({{w + at.ds, k}, {of(r.p.dq, query)}, w + at.gemms});
  const auto keys = [&](int64_t weights, void* rows, void* out, int which) {
    std::vector<void*> in{w + weights, rows};
    if (!chunk.starts) in.push_back(w + at.dkv_accum[(index + 1) % 2][which]);
    chunk.keys.run({in, {chunk.ends ? out : w + at.dkv_accum[index % 2][which]}, w + at.gemms});
  };
  keys(at.ds, q, of(r.p.dk, key), 0);
  keys(at.p, dout, of(r.p.dv, key), 1);
}

}  // namespace

GradGemms grad_gemms(const HeadSizes& z, DType dtype, Device& device) {
  const std::vector<QueryChunk> chunks = chunks_of(z, dtype, device);
  const Offsets at = offsets_of(z, chunks);
  CudaDevice& d = ebb::cuda::of(device);
  return {.workspace = at.bytes, .run = [=, &d](const GradParams& p, void* workspace) {
            const Run r{z, dtype, p, static_cast<char*>(workspace), d};
            int index = 0;
            for (const QueryChunk& chunk : chunks) {
              index = chunk.starts ? 0 : index + 1;
              run_chunk(r, chunk, at, index);
            }
          }};
}

}  // namespace ebb::ops::cuda
