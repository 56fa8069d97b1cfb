// The inner loops of the CPU backend, compiled once for each x86-64 level and chosen at start-up.
#pragma once

#include <cstdint>

#include "ir/expr.h"

namespace ebb::cpu {

// d[i] = op(a[i], b[i], c[i]) for i < n; arguments the op does not take are ignored.
using MapLoop = void (*)(float* d, const float* a, const float* b, const float* c, int64_t n);

struct Loops {
  MapLoop map[32];  // by ScalarOp
  void (*fill)(float* d, float v, int64_t n);
  void (*from_bf16)(float* d, const uint16_t* s, int64_t n);
  void (*from_f16)(float* d, const uint16_t* s, int64_t n);
  void (*to_bf16)(uint16_t* d, const float* s, int64_t n);
  // acc[i] += sum over rows of x[r, i]; x is [rows, width].
  void (*add_rows)(double* acc, const float* x, int64_t rows, int64_t width);
  void (*max_rows)(double* acc, const float* x, int64_t rows, int64_t width);
  double (*sum)(const float* x, int64_t n);
  double (*max)(const float* x, int64_t n);
  // sum of (x[i] - shift)^2
  double (*sum_squares)(const float* x, float shift, int64_t n);
  // s1[i] += sum over rows of x[r,i] - shift[i]; s2 of its square.
  void (*moment_rows)(double* s1, double* s2, const float* shift, const float* x, int64_t rows,
                      int64_t width);
};

const Loops& loops();  // of this machine's level

}  // namespace ebb::cpu
