#include "backend/cuda/kit/tma.h"

#include <cuda_runtime.h>

#include "backend/cuda/device/driver_function.h"
#include "backend/cuda/device/error.h"

namespace ebb::cuda {
namespace {

using EncodeTiled = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                 const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                                 const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
using EncodeImages = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                                  const cuuint64_t*, const cuuint64_t*, const int*, const int*,
                                  cuuint32_t, cuuint32_t, const cuuint32_t*, CUtensorMapInterleave,
                                  CUtensorMapSwizzle, CUtensorMapL2promotion,
                                  CUtensorMapFloatOOBfill);

CUtensorMapDataType type_of(Format f) {
  if (f == Format::f32) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return f == Format::f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

CUtensorMapSwizzle swizzle_of(int64_t row_bytes) {
  if (row_bytes == 128) return CU_TENSOR_MAP_SWIZZLE_128B;
  return row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_32B;
}

cuuint64_t size(int64_t v) { return static_cast<cuuint64_t>(v); }

}  // namespace

CUtensorMap tiled_map(const TmaTensor& t, const TmaBox& box) {
  static const auto encode = driver_function<EncodeTiled>("cuTensorMapEncodeTiled");
  const int64_t bytes = bytes_of(t.format);
  const cuuint64_t sizes[] = {size(t.size[0]), size(t.size[1]), size(t.size[2]), size(t.size[3])};
  const cuuint64_t strides[] = {size(t.stride[0] * bytes), size(t.stride[1] * bytes),
                                size(t.stride[2] * bytes)};
  const cuuint32_t boxes[] = {static_cast<cuuint32_t>(box.inner),
                              static_cast<cuuint32_t>(box.outer), 1, 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  CUtensorMap map = {};
  const CUresult status =
      encode(&map, type_of(t.format), t.rank, const_cast<void*>(t.data), sizes, strides, boxes,
             steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(box.inner * bytes),
             CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(status == CUDA_SUCCESS, "cuda: no descriptor for a tensor (", static_cast<int>(status),
          ")  [", t.size[3], ",", t.size[2], ",", t.size[1], ",", t.size[0], "] strides ",
          t.stride[2], ", ", t.stride[1], ", ", t.stride[0], " box ", box.outer, "x", box.inner);
  return map;
}

CUtensorMap images_map(const TmaImages& t, int pixels) {
  static const auto encode = driver_function<EncodeImages>("cuTensorMapEncodeIm2col");
  const cuuint64_t sizes[] = {size(t.c), size(t.w), size(t.h), size(t.n)};
  const cuuint64_t strides[] = {size(t.c * 2), size(t.w * t.c * 2), size(t.h * t.w * t.c * 2)};
  const int lower[] = {-t.left, -t.top}, upper[] = {t.right, t.bottom};
  const auto step = static_cast<cuuint32_t>(t.stride);
  const cuuint32_t steps[] = {1, step, step, 1};
  constexpr cuuint32_t channels = 64;
  CUtensorMap map = {};
  const CUresult status =
      encode(&map, type_of(t.format), 4, const_cast<void*>(t.data), sizes, strides, lower, upper,
             channels, static_cast<cuuint32_t>(pixels), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(status == CUDA_SUCCESS, "cuda: no descriptor for images (", static_cast<int>(status),
          ")  [", t.n, ",", t.h, ",", t.w, ",", t.c, "] corners ", -t.top, ",", -t.left, " ",
          t.bottom, ",", t.right, " stride ", t.stride, " pixels ", pixels);
  return map;
}

}  // namespace ebb::cuda
