// GEMMs and convolutions of operands of any float dtype with sums in f32. Weights are widened while
// they are packed, a panel of 64 columns at a time: they cost no copy in f32 and no pass of their
// own. Activations are widened before, as a whole. One thread packs what it multiplies, so panels
// stay in its caches.
#pragma once

#include <cstdint>
#include <functional>

#include "backend/cpu/gemm_args.h"
#include "core/dtype.h"

namespace ebb::cpu {

// Whether panels are the fastest here for activations and weights of these types and this many
// input channels.
bool panels_are_fast(DType activations, DType weights, int64_t channels);

// c [m,n] = sum over taps t of a_t [m,k] times b_t [k,n], plus bias [n] and residual [m,n]. The
// element (k,n) of b_t lies at n * taps * k + t * k in the weights. A matmul has one tap, a
// convolution one a pixel of its kernel. Sums are f32, in an order that does not depend on the
// number of threads.
struct PanelProblem {
  int64_t m = 0, n = 0, k = 0, taps = 1;
  DType a = DType::f32, weights = DType::f32, c = DType::f32, bias = DType::f32,
        residual = DType::f32;
  int64_t residual_rows = 1;  // of c that share a row of the residual
};

// The first elements of rows [begin, begin + count) of a_t; `zeros` are k of them.
using PanelRows = std::function<void(int64_t tap, int64_t begin, int64_t count, const float* a,
                                     const float* zeros, const float** rows)>;

class PanelMatmul {
 public:
  // a_count: elements of a, which may be fewer than those that rows() points to.
  PanelMatmul(const PanelProblem& p, int64_t a_count, PanelRows rows);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  void run(const GemmArgs& args) const;

 private:
  struct Own;  // the scratch memory of a thread
  Own own(void* scratch) const;
  void end(const GemmArgs& args, const Own& own, int64_t first, int64_t count,
           int64_t column) const;
  void tile(const GemmArgs& args, const float* a, int64_t index) const;

  PanelProblem p_;
  int64_t a_count_;
  PanelRows rows_;
  int threads_ = 1;
  int64_t panels_ = 0, chunks_ = 0, chunk_ = 0, depth_ = 0;  // of n; of m; rows a chunk; k a panel
  int64_t wide_bytes_ = 0, own_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace ebb::cpu
