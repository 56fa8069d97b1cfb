#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ir/kernel.h"
#include "ops/prim/embedding_grad/op.h"

namespace ebb::ops::cpu {
namespace {

constexpr int64_t tile = 64;  // columns per thread

struct Problem {
  int64_t rows, n, d;
};

// Threads share the columns, so every sum runs in the order of the ids whatever their number.
template <class T>
void scatter(const Problem& p, const T* dy, const int64_t* ids, float* out) {
  std::memset(out, 0, static_cast<size_t>(p.rows * p.d) * sizeof(float));
#pragma omp parallel for schedule(static) if (p.n * p.d > 16384)
  for (int64_t first = 0; first < p.d; first += tile) {
    const int64_t last = std::min(first + tile, p.d);
    for (int64_t i = 0; i < p.n; ++i)
      for (int64_t k = first; k < last; ++k)
        out[ids[i] * p.d + k] += static_cast<float>(dy[i * p.d + k]);
  }
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const Problem p{s.as<EmbeddingGrad>().rows, s.in[1].shape.numel(), s.in[0].shape[-1]};
  const DType dtype = s.in[0].dtype;
  const std::string at = s.at;
  return {.run = [=](const Call& c) {
    const auto* ids = static_cast<const int64_t*>(c.in[1]);
    for (int64_t i = 0; i < p.n; ++i)
      require(ids[i] >= 0 && ids[i] < p.rows, "embedding_grad: id ", ids[i], " is out of range (",
              p.rows, " rows)  at ", at);
    visit_dtype(dtype, [&](auto zero) {
      scatter(p, static_cast<const decltype(zero)*>(c.in[0]), ids, static_cast<float*>(c.out[0]));
    });
  }};
}

}  // namespace

std::vector<Kernel> embedding_grad() {
  return {{.op = "embedding_grad",
           .name = "embedding_grad_columns",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
