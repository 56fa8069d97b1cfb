// Panels: the inner loops of a GEMM of f32 whose second operand, weights of any float dtype, is
// packed and widened a panel at a time, just before it is used.
//
// Compiled once for each x86-64 level and chosen at start-up. Everything runs in the calling
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace ebb::cpu {

// Columns of a panel. Those behind the last one of a matrix are 0.
constexpr int64_t kPanelColumns = 64;

// to [k,kPanelColumns] = columns of weights [columns,k], which lie `row` elements apart; `columns`
// is at most kPanelColumns.
struct PanelPack {
  int64_t columns = 0, k = 0;
  const void* from = nullptr;
  int64_t row = 0;
  float* to = nullptr;
};

// c [m,kPanelColumns] += a [m,k] panel [k,kPanelColumns], in the first `columns`, rounded up to
// what the processor does at a time. Row i of a begins at a[i] + offset.
struct PanelGemm {
  int64_t m = 0, k = 0, columns = kPanelColumns;
  const float* const* a = nullptr;
  int64_t offset = 0;
  const float* panel = nullptr;
  float* c = nullptr;
};

struct PanelKernels {
  void (*gemm)(const PanelGemm&);
  void (*pack_f32)(const PanelPack&);
  void (*pack_bf16)(const PanelPack&);
  void (*pack_f16)(const PanelPack&);

  void pack(DType dtype, const PanelPack& p) const {
    (dtype == DType::bf16 ? pack_bf16 : dtype == DType::f16 ? pack_f16 : pack_f32)(p);
  }
};

const PanelKernels& panel_kernels();  // of this machine's level

// Those of every level that this machine runs, the best one first.
std::vector<const PanelKernels*> all_panel_kernels();

}  // namespace ebb::cpu
