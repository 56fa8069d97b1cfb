// Tiles: small dense f32 matrices in cache, multiplied and exponentiated with the widest vectors
// of the processor. The inner loops of attention.
//
// Compiled once for each x86-64 level and chosen at start-up. Everything runs in the calling
// thread; the bits depend on the level, not on the thread.
#pragma once

#include <cstdint>
#include <vector>

namespace ebb::cpu {

// Columns of tiles come in multiples of this, padded by the caller.
constexpr int64_t kTileLanes = 16;

// c[m,n] = a[m,k] b[k,n], plus the old c if `accumulate`. a(i,k) = a[i * a_row + k * a_col].
// n must be a multiple of kTileLanes.
struct TileGemm {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t a_row = 0, a_col = 1;
  const float* b = nullptr;
  int64_t b_row = 0;
  float* c = nullptr;
  int64_t c_row = 0;
  bool accumulate = false;
};

// Online softmax over a tile of transposed scores, a row a key and a column a query, so that lanes
// are queries and nothing is folded across them. s [keys,n] becomes 2^(s - max), where max is the
// running maximum of a column; sum becomes the running sum of such weights; result [width,n] and
// sum are first rescaled by 2^(old max - max). -infinity becomes 0. n as in TileGemm.
struct TileSoftmax {
  int64_t keys = 0, n = 0;
  float* s = nullptr;
  int64_t s_row = 0;
  float* max = nullptr;  // [n]; starts at -infinity
  float* sum = nullptr;  // [n]; starts at 0
  float* result = nullptr;
  int64_t result_row = 0, width = 0;
};

// to[j,i] = from[i,j] for i < rows and j < columns.
struct TileTranspose {
  int64_t rows = 0, columns = 0;
  const float* from = nullptr;
  int64_t from_row = 0;
  float* to = nullptr;
  int64_t to_row = 0;
};

// s [rows,n] becomes p = 2^(s - shift[row]), dp [rows,n] becomes p * (dp - delta[row]).
struct TileSoftmaxGrad {
  int64_t rows = 0, n = 0;
  float* s = nullptr;
  float* dp = nullptr;
  int64_t row = 0;  // of both
  const float* shift = nullptr;
  const float* delta = nullptr;
};

struct TileKernels {
  void (*gemm)(const TileGemm&);
  void (*softmax)(const TileSoftmax&);
  void (*softmax_grad)(const TileSoftmaxGrad&);
  void (*transpose)(const TileTranspose&);
};

const TileKernels& tile_kernels();  // of this machine's level

// Those of every level that this machine runs, the best one first.
std::vector<const TileKernels*> all_tile_kernels();

}  // namespace ebb::cpu
