// The windows of images with few channels as the rows of a matrix (im2col): elements (r, s,
// channel) in order, padded with zeros to whole 16-byte vectors. TMA reads no smaller ones.
#pragma once

#include <cstdint>

#include "backend/cuda/device/device.h"
#include "base/round_up.h"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops::cuda {

class WindowRows {
 public:
  explicit WindowRows(const ConvGeometry& g) : g_(g) {}

  int64_t pixels() const { return g_.n * g_.out_h() * g_.out_w(); }  // rows
  int64_t row() const { return g_.kh * g_.kw * g_.c; }               // elements without padding
  int64_t padded() const { return rounded_up(row(), vector); }
  // Of so many rows, or filters, in a workspace: so far that what comes next is aligned.
  int64_t bytes(int64_t rows) const {
    constexpr int64_t alignment = 256;
    return rounded_up(rows * padded() * 2, alignment);
  }

  // x: images of 16-bit elements -> rows [pixels(), padded()]. Where `filters` is given, also the
  // weights w [o, kh, kw, c] -> filters [o, padded()].
  void write(const void* x, void* rows, const void* w, void* filters,
             ebb::cuda::CudaDevice& device) const;

 private:
  static constexpr int64_t vector = 8;  // elements

  ConvGeometry g_;
};

}  // namespace ebb::ops::cuda
