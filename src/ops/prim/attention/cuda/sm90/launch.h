// attention on wgmma (sm_90a).
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace ebb::ops::cuda {

struct Sm90Params;

// A kernel and what its launch needs.
struct Sm90Kernel {
  void (*run)(Sm90Params) = nullptr;
  void (*combine)(Sm90Params) = nullptr;  // combines splits of keys; null: no split-KV
  int width = 0, keys = 0, rows = 0;      // widest head; keys per block; queries per tile
  int threads = 0;
  int64_t bytes = 0;  // of shared memory
  bool tail = false;  // the last columns are a TMA box of 16, and o is stored by TMA
  double cost = 1;    // per key and query, relative to the other kernels of its width
};

// Every kernel for heads `width` wide, the narrowest that are wide enough.
std::vector<Sm90Kernel> sm90_kernels_bf16(int64_t width);
std::vector<Sm90Kernel> sm90_kernels_f16(int64_t width);
// The same of kernels that take a mask without a bias, up to width 128.
std::vector<Sm90Kernel> sm90_masked_kernels_bf16(int64_t width);
std::vector<Sm90Kernel> sm90_masked_kernels_f16(int64_t width);

std::vector<Kernel> attention_sm90();
std::vector<Kernel> attention_sm90_short();  // at most 256 queries and keys
std::vector<Kernel> attention_sm90_wide();   // heads 264 to 512 wide

}  // namespace ebb::ops::cuda
