#include "backend/cpu/panel_gemm.h"

#include <omp.h>

#include <algorithm>
#include <utility>

#include "backend/cpu/onednn.h"
#include "backend/cpu/simd/loops.h"
#include "backend/cpu/simd/panels.h"
#include "backend/cpu/widen.h"
#include "base/round_up.h"

namespace ebb::cpu {
namespace {

constexpr int64_t kChunk = 1024;  // rows whose sums stay in the second cache
constexpr int64_t kDepth = 192;   // k of a panel, 48 KiB: the first cache where AVX-512 is
constexpr int64_t kGroup = 6;     // rows of a register tile

// to[j] += from[j], of a dtype.
void add(float* to, DType dtype, const void* from, int64_t first, int64_t count) {
  visit_dtype(dtype, [&](auto zero) {
    const auto* const p = static_cast<const decltype(zero)*>(from) + first;
    for (int64_t j = 0; j < count; ++j) to[j] += static_cast<float>(p[j]);
  });
}

void write(DType dtype, const float* from, void* to, int64_t first, int64_t count) {
  if (dtype == DType::bf16) return loops().to_bf16(static_cast<uint16_t*>(to) + first, from, count);
  visit_dtype(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const p = static_cast<T*>(to) + first;
    for (int64_t j = 0; j < count; ++j) p[j] = static_cast<T>(from[j]);
  });
}

}  // namespace

bool panels_are_fast(DType activations, DType weights, int64_t channels) {
  if (channels < 16 || !is_float(activations) || !is_float(weights)) return false;
  // oneDNN is faster in f32, also where weights of 16 bits are widened for it first.
  return activations != DType::f32 && !onednn_fast_in(activations);
}

struct PanelMatmul::Own {
  float *panel, *sums, *zeros, *bias;
  const float** rows;  // [taps,chunk]
};

PanelMatmul::PanelMatmul(const PanelProblem& p, int64_t a_count, PanelRows rows)
    : p_(p), a_count_(a_count), rows_(std::move(rows)), threads_(omp_get_max_threads()) {
  panels_ = ceil_div(p.n, kPanelColumns);
  // enough chunks for all threads, as long as a panel is packed for many rows
  const int64_t wanted = ceil_div(4 * threads_, std::max<int64_t>(panels_, 1));
  const int64_t most = std::clamp(ceil_div(p.m, wanted), int64_t{96}, kChunk);
  chunk_ = rounded_up(ceil_div(p.m, std::max<int64_t>(1, ceil_div(p.m, most))), kGroup);
  chunks_ = p.m == 0 ? 0 : ceil_div(p.m, chunk_);
  depth_ = rounded_up(ceil_div(p.k, ceil_div(p.k, kDepth)), 16);
  wide_bytes_ = p.a == DType::f32 ? 0 : rounded_up(a_count * 4, 64);
  own_bytes_ = rounded_up((depth_ + chunk_ + 1) * kPanelColumns * 4 + p.k * 4 +
                              p.taps * chunk_ * int64_t{sizeof(float*)},
                          4096);
  scratch_bytes_ = wide_bytes_ + own_bytes_ * threads_;
}

PanelMatmul::Own PanelMatmul::own(void* scratch) const {
  char* const first = static_cast<char*>(scratch) + wide_bytes_ + omp_get_thread_num() * own_bytes_;
  auto* const rows = reinterpret_cast<const float**>(first);
  auto* const panel = reinterpret_cast<float*>(rows + p_.taps * chunk_);
  float* const sums = panel + depth_ * kPanelColumns;
  float* const bias = sums + chunk_ * kPanelColumns;
  return {panel, sums, bias + kPanelColumns, bias, rows};
}

// Bias and residual come last: to begin with them would round every product to their size.
void PanelMatmul::end(const GemmArgs& args, const Own& own, int64_t first, int64_t count,
                      int64_t column) const {
  const int64_t columns = std::min(kPanelColumns, p_.n - column);
  std::fill_n(own.bias, columns, 0.0f);
  if (args.bias) add(own.bias, p_.bias, args.bias, column, columns);
  for (int64_t i = 0; i < count; ++i) {
    float* const sums = own.sums + i * kPanelColumns;
    for (int64_t j = 0; j < columns; ++j) sums[j] += own.bias[j];
    if (args.residual)
      add(sums, p_.residual, args.residual, (first + i) / p_.residual_rows * p_.n + column,
          columns);
    write(p_.c, sums, args.c, (first + i) * p_.n + column, columns);
  }
}

void PanelMatmul::tile(const GemmArgs& args, const float* a, int64_t index) const {
  const PanelKernels& kernels = panel_kernels();
  const Own o = own(args.scratch);
  const int64_t first = index / panels_ * chunk_, count = std::min(chunk_, p_.m - first);
  const int64_t column = index % panels_ * kPanelColumns;
  const int64_t columns = std::min(kPanelColumns, p_.n - column);
  std::fill_n(o.zeros, p_.k, 0.0f);
  for (int64_t t = 0; t < p_.taps; ++t) rows_(t, first, count, a, o.zeros, o.rows + t * chunk_);
  std::fill_n(o.sums, count * kPanelColumns, 0.0f);
  const auto* const weights = static_cast<const char*>(args.weights);
  for (int64_t k = 0; k < p_.k; k += depth_)
    for (int64_t t = 0; t < p_.taps; ++t) {
      const int64_t at = (column * p_.taps + t) * p_.k + k, depth = std::min(depth_, p_.k - k);
      kernels.pack(p_.weights, {.columns = columns,
                                .k = depth,
                                .from = weights + at * size_of(p_.weights),
                                .row = p_.taps * p_.k,
                                .to = o.panel});
      kernels.gemm({.m = count,
                    .k = depth,
                    .columns = columns,
                    .a = o.rows + t * chunk_,
                    .offset = k,
                    .panel = o.panel,
                    .c = o.sums});
    }
  end(args, o, first, count, column);
}

void PanelMatmul::run(const GemmArgs& args) const {
  const auto* a = static_cast<const float*>(args.a);
  if (p_.a != DType::f32) {
    widen(p_.a, args.a, static_cast<float*>(args.scratch), a_count_);
    a = static_cast<const float*>(args.scratch);
  }
#pragma omp parallel for schedule(dynamic) num_threads(threads_)
  for (int64_t i = 0; i < panels_ * chunks_; ++i) tile(args, a, i);
}

}  // namespace ebb::cpu
