// resample in rows: the rows that a result row needs are summed, then the pixels of the sum.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/prim/resample/op.h"

namespace ebb::ops::cpu {
namespace {

// An AxisMap as the loops want it.
struct Taps {
  std::vector<int64_t> first, index;
  std::vector<float> weight;
  explicit Taps(const AxisMap& m)
      : first(m.first), index(m.index), weight(m.weight.begin(), m.weight.end()) {}
};

struct Task {
  Taps rows, columns;
  int64_t images = 0, h = 0, w = 0, p = 0, q = 0, c = 0;
};

// sum[j] = sum over the taps t of row i of weight[t] * from[index[t] * step + j], j < step.
template <class T>
void combine(const Taps& taps, int64_t i, const T* from, int64_t step, float* sum) {
  const auto begin = static_cast<size_t>(taps.first[static_cast<size_t>(i)]);
  const auto end = static_cast<size_t>(taps.first[static_cast<size_t>(i) + 1]);
  std::fill_n(sum, step, 0.0f);
  for (size_t t = begin; t < end; ++t) {
    const float weight = taps.weight[t];
    const T* const line = from + taps.index[t] * step;
#pragma omp simd
    for (int64_t j = 0; j < step; ++j) sum[j] += weight * static_cast<float>(line[j]);
  }
}

// Result row i of all images. `line` is [w*c] of scratch, then [c].
template <class T>
void result_row(const Task& k, int64_t i, const T* x, T* y, float* line) {
  float* const pixel = line + k.w * k.c;
  combine(k.rows, i % k.p, x + i / k.p * k.h * k.w * k.c, k.w * k.c, line);
  for (int64_t q = 0; q < k.q; ++q) {
    combine(k.columns, q, static_cast<const float*>(line), k.c, pixel);
    T* const to = y + (i * k.q + q) * k.c;
#pragma omp simd
    for (int64_t j = 0; j < k.c; ++j) to[j] = static_cast<T>(pixel[j]);
  }
}

// Result rows are divided into at most so many chunks, each with its own scratch memory.
constexpr int64_t kChunks = 64;

Program prepare(const Signature& s, const Tune&, Device&) {
  const Shape &x = s.in[0].shape, &y = s.out[0].shape;
  const Task k{.rows = Taps(axis_map(s, 0)),
               .columns = Taps(axis_map(s, 1)),
               .images = x[0],
               .h = x[1],
               .w = x[2],
               .p = y[1],
               .q = y[2],
               .c = x[3]};
  const int64_t rows = k.images * k.p, chunks = std::min(rows, kChunks);
  const int64_t scratch = ((k.w + 1) * k.c + 15) / 16 * 16;
  const auto run = [=, type = s.in[0].dtype](const Call& call) {
    visit_dtype(type, [&](auto zero) {
      using T = decltype(zero);
      const auto* from = static_cast<const T*>(call.in[0]);
      auto* to = static_cast<T*>(call.out[0]);
#pragma omp parallel for
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        float* const line = static_cast<float*>(call.workspace) + chunk * scratch;
        for (int64_t i = rows * chunk / chunks; i < rows * (chunk + 1) / chunks; ++i)
          result_row(k, i, from, to, line);
      }
    });
  };
  return {.workspace = chunks * scratch * 4, .run = run};
}

}  // namespace

std::vector<Kernel> resample() {
  return {{.op = "resample",
           .name = "resample_rows",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
