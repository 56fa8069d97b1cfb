// Strided copies: the kernels behind every op that only moves data.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/device/device.h"

namespace ebb::cuda {

// A dim of a box, with its strides in elements. Reads lie `before` indices back; where that is
// outside of [0, extent) the element is zero.
struct CopyDim {
  int64_t size = 1, from = 0, to = 0;
  int64_t before = 0, extent = -1;  // -1: size
};

// The location of a box: its input, and the offsets of its first element on both sides.
struct CopyOffset {
  size_t input = 0;
  int64_t from = 0, to = 0;
};

// to[i . to_strides] = from[(i - before) . from_strides] for every index i of some boxes, prepared
// once. Elements are opaque. No element of `to` may be written twice. `aligned`: see Signature.
class StridedCopy {
 public:
  StridedCopy(int64_t element_bytes, bool aligned)
      : element_(element_bytes), widest_(aligned ? 16 / element_bytes : 1) {}
  // Dims outermost first; the last is best contiguous in `to`.
  void add(const std::vector<CopyDim>& dims, CopyOffset offset = {});
  void run(const char* name, std::span<void* const> from, void* to, CudaDevice& device) const;

 private:
  struct Box {
    std::vector<CopyDim> dims;
    CopyOffset offset;
  };
  void split(Box box);
  static bool transposes(const Box& b);
  void run_units(const char* name, std::span<const Box> boxes, std::span<void* const> from,
                 void* to, CudaDevice& device) const;
  void run_tiles(const char* name, const void* from, void* to, CudaDevice& device) const;
  int64_t unit_of(const Box& b) const;

  int64_t element_;
  int64_t widest_;  // elements an access
  std::vector<Box> boxes_;
};

// The dims of a box of `sizes` in two arrays with these strides.
std::vector<CopyDim> copy_dims(std::span<const int64_t> sizes, std::span<const int64_t> from,
                               std::span<const int64_t> to);

// The maximum rank of a box after dims of size 1 are dropped and contiguous dims merged.
constexpr size_t largest_copy_rank = 8;
bool can_copy(const std::vector<CopyDim>& dims);

}  // namespace ebb::cuda
