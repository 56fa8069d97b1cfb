// Descriptors of tensors for TMA copies, encoded by the driver (found at run time: nothing links to
// it).
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>

namespace ebb::cuda {

enum class Format : uint8_t { bf16, f16, f32 };
constexpr int64_t bytes_of(Format f) { return f == Format::f32 ? 4 : 2; }

// A tensor of rank 3 or 4, innermost dim first; strides are in elements and may be in any order.
// All addresses and strides are multiples of 16 bytes.
struct TmaTensor {
  const void* data = nullptr;
  Format format = Format::bf16;
  unsigned rank = 3;
  std::array<int64_t, 4> size = {1, 1, 1, 1};
  std::array<int64_t, 3> stride = {0, 0, 0};  // of dims 1, 2, 3; dim 0 is contiguous
};
// A box is `inner` x `outer` of dims 0 and 1; a row of it is 128, 64 or 32 bytes.
struct TmaBox {
  int inner = 64, outer = 1;
};
// Boxes lie in shared memory in the swizzle of their row.
CUtensorMap tiled_map(const TmaTensor& t, const TmaBox& box);

// NHWC images read as the rows of a convolution's matrix: 64 channels of `pixels` consecutive
// output pixels, each at the filter's upper left corner; out of the image reads zero.
struct TmaImages {
  const void* data = nullptr;
  Format format = Format::bf16;
  int64_t n = 1, h = 1, w = 1, c = 8;
  int stride = 1;
  int top = 0, left = 0;      // rows and columns of zeros before the image
  int bottom = 0, right = 0;  // last corner of the filter: counted from the image's last pixel
};
CUtensorMap images_map(const TmaImages& t, int pixels);

}  // namespace ebb::cuda
