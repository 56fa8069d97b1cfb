// The schedule of a general GEMM: kernel, tile size, split-K.
#pragma once

#include <optional>
#include <vector>

#include "backend/cuda/device/device.h"
#include "ir/kernel.h"

namespace ebb::cuda {

// Which index of an operand is k: the contiguous one, or the other.
enum class K { inner, outer };

// Narrow tiles in addition to the square ones: none; 128 x 32 for aligned operands; 128 x 32 and
// 32 x 128 for any.
enum class Narrow { none, columns, both };

// c[m, n] = sum over k of a[m, k] b[n, k], `batch` times.
struct GemmTask {
  int64_t m = 0, n = 0, k = 0, batch = 1;  // maxima over the batch
  int64_t out_rows = 0;                    // of n elements, of the full result
  DType a = DType::f32, b = DType::f32, out = DType::f32;
  std::optional<DType> bias, residual;
  int64_t residual_rows = 1;  // result rows per residual row
  // Contiguous runs along `inner` of each operand, which 16-byte vectors must not cross.
  int64_t a_run = 0, b_run = 0;
  K a_k = K::inner, b_k = K::inner;
  Narrow narrow = Narrow::none;
  bool aligned = true;  // see Signature

  // Whether an operand whose contiguous runs are so long can be accessed by 16-byte vectors.
  bool vectors(DType dtype, int64_t run) const { return aligned && run * size_of(dtype) % 16 == 0; }
};

struct GemmPlan {
  bool tensor = false;     // tensor cores; otherwise f32 multiply-adds
  int64_t m = 64, n = 64;  // of a tile
  int64_t splits = 1;      // split-K factor
  int64_t workspace = 0;   // bytes
};

// Whether all sizes fit the kernels' index types.
bool gemm_supports(const GemmTask& task);
// Choices for the tuner, best guess first.
std::vector<Tune> gemm_space(const GemmTask& task, const CudaDevice& device);
GemmPlan gemm_plan(const GemmTask& task, const Tune& tune, const CudaDevice& device);

// out[i] = partials[0][i] + partials[1][i] + ... + bias[i % n] + residual, in a fixed order.
struct SplitKReduction {
  const float* partials = nullptr;
  int64_t count = 0, elements = 0;
  const void *bias = nullptr, *residual = nullptr;
  void* out = nullptr;
  DType bias_dtype = DType::f32, residual_dtype = DType::f32, dtype = DType::f32;
  int64_t n = 1, residual_rows = 1;
  bool aligned = true;  // out, see Signature
};
void reduce_split_k(const SplitKReduction& p, CudaDevice& device);

// out[c] = sum over rows of x[row, c], in f32. `workspace` holds column_sum_partials() rows of f32.
struct ColumnSums {
  const void* x = nullptr;
  DType dtype = DType::f32;
  int64_t rows = 0, cols = 0;
  float *workspace = nullptr, *out = nullptr;
  bool aligned = true;  // see Signature
};
int64_t column_sum_partials(int64_t rows, int64_t cols, const CudaDevice& device);
void column_sums(const ColumnSums& p, CudaDevice& device);

}  // namespace ebb::cuda
