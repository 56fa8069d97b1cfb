#include "codegen/loops/work_split.h"

#include <algorithm>

namespace ebb::codegen {

int vector_of(const std::vector<DType>& full) {
  constexpr int64_t access = 16, most = 8;
  int64_t widest = 1;
  for (const DType t : full) widest = std::max(widest, size_of(t));
  return static_cast<int>(std::min(most, access / widest));
}

int steps_of(int loads, int cost) {
  constexpr int under_way = 4, longest = 320;  // loads; instructions
  int steps = std::max(1, under_way / std::max(loads, 1));
  while (steps > 1 && steps * cost > longest) steps /= 2;
  return steps;
}

int steps_for(int steps, int64_t elements, int64_t of_block, int sm_count) {
  if (elements == 0) return steps;
  while (steps > 1 && elements < int64_t{2} * sm_count * of_block * steps) steps /= 2;
  return steps;
}

std::vector<bool> narrow_results(const std::vector<DType>& out) {
  std::vector<bool> narrow;
  for (const DType t : out) narrow.push_back(t == DType::bf16 || t == DType::f16);
  return narrow;
}

}  // namespace ebb::codegen
