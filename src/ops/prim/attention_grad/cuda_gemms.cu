#include "ops/prim/attention_grad/cuda_gemms.cuh"

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/work_split.h"
#include "ops/prim/matmul/op.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul();

namespace {

constexpr int kWeightThreads = 256;
constexpr int64_t kWeightRoom = int64_t{256} << 20;  // bytes of weights in memory at a time
constexpr int64_t kWeightBytes = 12;                 // of a query and a key: s, dp, p and ds

// Rows of weights: `rows` queries of each sample from `first` on, by all keys.
struct WeightParams {
  const float *s, *dp, *shift, *delta;  // shift and delta: of the samples' queries, `pitch` apart
  void *p, *ds;
  int64_t pitch;
  int first, rows, keys, parts;  // parts: thread blocks a row
  float scale, scale_log2;
};

// p = exp(scale s - lse) and ds = scale p (dp - delta); V keys a thread.
// grid: p.parts thread blocks a row.  deterministic: yes.
template <class T, int V>
__global__ __launch_bounds__(kWeightThreads) void attention_grad_weights(
    const __grid_constant__ WeightParams p) {
  begin();
  const int64_t row = blockIdx.x / p.parts;
  const int key = static_cast<int>(blockIdx.x % p.parts * kWeightThreads + threadIdx.x) * V;
  if (key >= p.keys) return;
  const int64_t query = row / p.rows * p.pitch + p.first + row % p.rows;
  const float shift = p.shift[query], delta = p.delta[query];
  const int64_t at = row * p.keys + key;
  const auto s = *reinterpret_cast<const Vec<float, V>*>(p.s + at);
  const auto dp = *reinterpret_cast<const Vec<float, V>*>(p.dp + at);
  Vec<T, V> weight, ds;
#pragma unroll
  for (int i = 0; i < V; ++i) {
    const float w = fast_exp2(fmaf(s.v[i], p.scale_log2, -shift));
    weight.v[i] = from_float<T>(w);
    ds.v[i] = from_float<T>(p.scale * w * (dp.v[i] - delta));
  }
  *reinterpret_cast<Vec<T, V>*>(static_cast<T*>(p.p) + at) = weight;
  *reinterpret_cast<Vec<T, V>*>(static_cast<T*>(p.ds) + at) = ds;
}

int64_t padded(int64_t bytes) { return ceil_div(bytes, 256) * 256; }

Program product(const Matmul& attrs, std::vector<Type> in, Device& device) {
  Signature s{&def::matmul(), attrs, std::move(in), {}, "attention_grad"};
  s.out = s.op->infer(s);
  for (const Kernel& k : matmul())
    if (k.supports(s, device))
      return k.prepare(s, k.space ? k.space(s, device).front() : Tune{}, device);
  fail("attention_grad: no kernel for a product  ", s.text());
}

// Queries [row, row + rows) of some samples. dk and dv are summed over the pieces of a sample, in
// f32 until the last one.
struct Piece {
  int64_t sample = 0, samples = 1, row = 0, rows = 0;
  bool starts = true, ends = true;
  Program scores, queries, keys;  // s and dp; dq; dk and dv
};

void prepare_piece(Piece& piece, const HeadSizes& z, DType dtype, Device& device) {
  const Type rows{dtype, {piece.samples, piece.rows, z.width}};
  const Type keys{dtype, {piece.samples, z.s, z.width}};
  const Type weights{dtype, {piece.samples, piece.rows, z.s}};
  std::vector<Type> sums{weights, rows};
  if (!piece.starts) sums.push_back({DType::f32, keys.shape});
  piece.scores = product({.trans_b = true, .dtype = "f32"}, {rows, keys}, device);
  piece.queries = product({}, {weights, keys}, device);
  piece.keys = product({.trans_a = true, .dtype = piece.ends ? "" : "f32"}, sums, device);
}

// Whole samples, as many as there is room for, or pieces of one.
std::vector<Piece> pieces_of(const HeadSizes& z, DType dtype, Device& device) {
  const int64_t room = kWeightRoom / kWeightBytes, all = int64_t{z.t} * z.s;
  const int64_t samples = std::clamp<int64_t>(room / all, 1, z.heads);
  const int64_t parts = std::clamp<int64_t>(ceil_div(all, room), 1, ceil_div(z.t, 64));
  const int64_t rows = ceil_div(ceil_div(z.t, parts), 64) * 64;
  std::vector<Piece> pieces;
  for (int64_t n = 0; n < z.heads; n += samples)
    for (int64_t row = 0; row < z.t; row += rows) {
      Piece p{.sample = n, .samples = std::min(samples, z.heads - n), .row = row};
      p.rows = std::min(rows, z.t - row);
      p.starts = row == 0, p.ends = row + rows >= z.t;
      const auto same = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& o) {
        return o.samples == p.samples && o.rows == p.rows && o.starts == p.starts &&
               o.ends == p.ends;
      });
      if (same == pieces.end())
        prepare_piece(p, z, dtype, device);
      else
        p.scores = same->scores, p.queries = same->queries, p.keys = same->keys;
      pieces.push_back(std::move(p));
    }
  return pieces;
}

// Addresses in the workspace.
struct Places {
  int64_t s, dp, p, ds, sums[2][2], products, bytes;  // sums: by turns, of dk and dv
};

Places places_of(const HeadSizes& z, const std::vector<Piece>& pieces) {
  int64_t weights = 0, products = 0;
  for (const Piece& p : pieces) {
    weights = std::max(weights, p.samples * p.rows * z.s);
    products = std::max({products, p.scores.workspace, p.queries.workspace, p.keys.workspace});
  }
  Places at{};
  const auto place = [&](int64_t& to, int64_t bytes) { to = at.bytes, at.bytes += padded(bytes); };
  place(at.s, weights * 4), place(at.dp, weights * 4);
  place(at.p, weights * 2), place(at.ds, weights * 2);
  const int64_t sums = pieces.empty() || pieces[0].ends ? 0 : int64_t{z.s} * z.width * 4;
  for (auto& turn : at.sums)
    for (int64_t& to : turn) place(to, sums);
  place(at.products, products);
  return at;
}

struct Run {
  const HeadSizes& z;
  DType dtype;
  const GradParams& p;
  char* workspace;
  CudaDevice& device;
};

void weigh(const Run& r, const Piece& piece, const Places& at) {
  const int v = r.z.s % 4 == 0 ? 4 : 1;
  WeightParams w{.s = reinterpret_cast<const float*>(r.workspace + at.s),
                 .dp = reinterpret_cast<const float*>(r.workspace + at.dp),
                 .shift = r.p.shift + piece.sample * r.p.pitch,
                 .delta = r.p.delta + piece.sample * r.p.pitch,
                 .p = r.workspace + at.p,
                 .ds = r.workspace + at.ds,
                 .pitch = r.p.pitch};
  w.first = static_cast<int>(piece.row), w.rows = static_cast<int>(piece.rows), w.keys = r.z.s;
  w.parts = static_cast<int>(ceil_div(r.z.s, kWeightThreads * v));
  w.scale = r.z.scale, w.scale_log2 = r.z.scale_log2;
  const Launch launch{.grid = static_cast<unsigned>(piece.samples * piece.rows * w.parts),
                      .block = kWeightThreads};
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    ebb::cuda::launch("attention_grad_weights",
                      v == 4 ? attention_grad_weights<T, 4> : attention_grad_weights<T, 1>, launch,
                      w, r.device);
  };
  if (r.dtype == DType::bf16)
    run(__nv_bfloat16{});
  else
    run(__half{});
}

// `turn`: the number of the piece among those of its sample.
void run_piece(const Run& r, const Piece& piece, const Places& at, int turn) {
  const auto of = [&](const void* tensor, int64_t row) {
    return static_cast<char*>(const_cast<void*>(tensor)) + row * r.z.width * 2;
  };
  const int64_t query = piece.sample * r.z.t + piece.row, key = piece.sample * r.z.s;
  char* const w = r.workspace;
  void *const q = of(r.p.q, query), *const dout = of(r.p.dout, query), *const k = of(r.p.k, key);
  piece.scores.run({{q, k}, {w + at.s}, w + at.products});
  piece.scores.run({{dout, of(r.p.v, key)}, {w + at.dp}, w + at.products});
  weigh(r, piece, at);
  piece.queries.run({{w + at.ds, k}, {of(r.p.dq, query)}, w + at.products});
  const auto keys = [&](int64_t weights, void* rows, void* out, int which) {
    std::vector<void*> in{w + weights, rows};
    if (!piece.starts) in.push_back(w + at.sums[(turn + 1) % 2][which]);
    piece.keys.run({in, {piece.ends ? out : w + at.sums[turn % 2][which]}, w + at.products});
  };
  keys(at.ds, q, of(r.p.dk, key), 0);
  keys(at.p, dout, of(r.p.dv, key), 1);
}

}  // namespace

GradProducts grad_products(const HeadSizes& z, DType dtype, Device& device) {
  const std::vector<Piece> pieces = pieces_of(z, dtype, device);
  const Places at = places_of(z, pieces);
  CudaDevice& d = ebb::cuda::of(device);
  return {.workspace = at.bytes, .run = [=, &d](const GradParams& p, void* workspace) {
            const Run r{z, dtype, p, static_cast<char*>(workspace), d};
            int turn = 0;
            for (const Piece& piece : pieces) {
              turn = piece.starts ? 0 : turn + 1;
              run_piece(r, piece, at, turn);
            }
          }};
}

}  // namespace ebb::ops::cuda
