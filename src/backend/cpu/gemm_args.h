// GemmArgs: the addresses of a GEMM or convolution whose weights are read as they lie.
#pragma once

namespace ebb::cpu {

struct GemmArgs {
  const void* a = nullptr;
  const void* weights = nullptr;
  const void* bias = nullptr;      // may be null
  const void* residual = nullptr;  // may be null
  void* c = nullptr;
  void* scratch = nullptr;
};

}  // namespace ebb::cpu
