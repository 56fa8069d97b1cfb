// GEMMs and convolutions of bf16 on matrix tiles (AMX), with sums in f32. Weights are read as they
// lie and packed while they are used, a panel of 32 columns at a time; activations are read in
// place, or from a copy with the padding of a convolution. One thread packs what it multiplies, so
// panels stay in its caches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/gemm_args.h"
#include "core/dtype.h"

namespace ebb::cpu {

struct AmxKernels;

// c [n,p,q,o] = sum over r,s,k of a [n, p * stride - top + r, q * stride - left + s, k]
// * weights [o,r,s,k], plus bias [o] and residual. a, weights, c and residual are bf16. A matmul
// [m,k] x [o,k] has images of one row of m pixels and a kernel of one pixel.
struct AmxProblem {
  int64_t images = 1, h = 1, w = 0, k = 0;
  int64_t o = 0, kh = 1, kw = 1, stride = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;
  DType bias = DType::f32;
  int64_t residual_rows = 1;  // pixels of c that share a row of the residual

  int64_t out_h() const { return (h + top + bottom - kh) / stride + 1; }
  int64_t out_w() const { return (w + left + right - kw) / stride + 1; }
};

// Whether this machine has the tiles, and they are the fastest for so many channels.
bool amx_takes(const AmxProblem& p);

class AmxMatmul {
 public:
  explicit AmxMatmul(const AmxProblem& p);
  int64_t scratch_bytes() const { return scratch_bytes_; }
  void run(const GemmArgs& args) const;

 private:
  struct Tiles {
    int64_t first, count;
  };
  struct Panel;  // of weights, and what a thread makes of it
  void place_tiles();
  bool is_dense() const;
  int64_t shift(int64_t tap) const;
  int64_t position(int64_t tile) const;
  void pixels(int64_t tile, int64_t* to) const;
  void divide();
  void copy_row(const GemmArgs& args, uint16_t* to, int64_t row) const;
  Panel panel(const GemmArgs& args, const uint16_t* a, int64_t column) const;
  void pack(const Panel& to, int64_t k) const;
  void multiply(const Panel& p, Tiles tiles, int64_t k, float* sums) const;
  void prefetch(const Panel& p, std::span<const int64_t> pixels) const;
  void write(const Panel& p, std::span<const int64_t> pixels, const float* sums) const;
  void block(const GemmArgs& args, const uint16_t* a, int64_t index) const;

  AmxProblem p_;
  const AmxKernels* amx_;
  int64_t taps_ = 1;  // pixels of the kernel
  bool in_place_ = false;
  int64_t depth_ = 0;             // channels of a as it is read
  int64_t row_ = 0, height_ = 0;  // positions from row to row; rows from image to image
  int64_t positions_ = 0;         // of a as it is read
  // Where tiles of an image begin, and where the last one ends; none where 16 rows follow 16 rows.
  std::vector<int64_t> starts_;
  int64_t tiles_ = 0;
  std::vector<int64_t> shifts_;  // of a, by taps
  int threads_ = 1;
  int64_t chunk_ = 0, chunks_ = 0;  // tiles of a chunk
  int64_t panels_ = 0, panel_ = 0;  // of o; channels of a panel
  int64_t copy_bytes_ = 0, own_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace ebb::cpu
