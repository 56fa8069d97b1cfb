// Products of bf16 on matrix tiles (AMX), and what is made of them in attention, GEMMs and
// convolutions. For processors that have them; amx_kernels() says so.
//
// A tile is 1 KiB: 16 rows of 32 numbers.
// - A left operand [m,k] has rows 16 i and columns 32 j onwards in tile (i,j), row by row. Packed,
//   each tile is in one piece, and the tiles that a sum over k reads follow each other.
// - A right operand [k,n] is always packed. It has rows 32 j and columns 16 i onwards in tile
// (j,i),
//   two rows in one: elements (2 r, c) and (2 r + 1, c) lie side by side, in row r of the tile. The
//   tiles that a sum over k reads follow each other.
#pragma once

#include <cstdint>

namespace ebb::cpu {

constexpr int64_t kTileRows = 16, kTileDepth = 32;  // of a left operand; a right one's are turned
constexpr int64_t kTileSize = kTileRows * kTileDepth;

// Numbers from row to row of a tile, from tile to tile along k, and from one row of tiles to the
// next.
struct LeftOperand {
  const uint16_t* first = nullptr;
  int64_t row = kTileDepth, next = kTileSize, step = 0;
};

// c = the sum over t of a_t b_t, plus the old c if `accumulate`. The first number of a_t lies
// shifts[t] numbers behind that of a; the b_t of a column of tiles follow each other.
struct AmxGemm {
  int64_t m = 0, n = 0, k = 0;  // in tiles: of 16, 16 and 32
  LeftOperand a = {};
  const uint16_t* b = nullptr;
  int64_t b_step = 0;  // numbers from one column of tiles to the next
  int64_t taps = 1;
  const int64_t* shifts = nullptr;  // not read if there is one
  float* c = nullptr;
  int64_t c_row = 0;  // floats from row to row
  bool accumulate = false;
};

// As TileSoftmax, of scores times `factor`; what they become goes to the right operand p
// [keys,n], rounded to bf16. Sums are of what was not rounded. keys up to a whole tile are 0.
struct AmxSoftmax {
  int64_t keys = 0, n = 0;  // n: a multiple of 16
  const float* s = nullptr;
  int64_t s_row = 0;
  float factor = 1;
  float* max = nullptr;  // [n], of scores times factor; starts at -infinity
  float* sum = nullptr;  // [n]; starts at 0
  float* result = nullptr;
  int64_t result_row = 0, width = 0;
  uint16_t* p = nullptr;
};

// Rows of bf16 `step` numbers apart, to be packed as whole tiles; missing numbers are 0.
struct AmxPack {
  int64_t rows = 0, width = 0;  // width: even
  const uint16_t* from = nullptr;
  int64_t step = 0;
  uint16_t* to = nullptr;
  int64_t to_step = 0;  // numbers from one row (or column) of tiles to the next
};

// Rows of bf16 of sums: to[pixels[i]] = sums[i] + bias + residual[pixels[i] / residual_rows], for
// every i whose pixel is not negative.
struct AmxEnd {
  int64_t rows = 0, columns = 0;  // columns: at most 32
  const float* sums = nullptr;    // [rows,32]
  const float* bias = nullptr;    // [32]
  const int64_t* pixels = nullptr;
  const uint16_t* residual = nullptr;  // may be null
  int64_t residual_rows = 1;
  uint16_t* to = nullptr;
  int64_t step = 0;  // numbers from row to row of both
};

struct AmxKernels {
  void (*begin)();  // in every thread, before gemm
  void (*end)();    // afterwards
  void (*gemm)(const AmxGemm&);
  void (*softmax)(const AmxSoftmax&);
  void (*write)(const AmxEnd&);
  void (*pack_left)(const AmxPack&);             // a [rows,width]
  void (*pack_left_transposed)(const AmxPack&);  // a [width,rows]
  void (*pack_right)(const AmxPack&);            // b [width,rows]
};

// Null where this machine has none.
const AmxKernels* amx_kernels();

}  // namespace ebb::cpu
