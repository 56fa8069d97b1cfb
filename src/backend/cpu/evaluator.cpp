#include "backend/cpu/evaluator.h"

#include <algorithm>

namespace ebb::cpu {

Split make_split(const IterationSpace& space, int64_t first, int64_t elements) {
  Split s{space.rank() - 1, 1, 1};
  while (s.dim > first && s.inner * space.sizes[static_cast<size_t>(s.dim)] * 2 <= elements) {
    s.inner *= space.sizes[static_cast<size_t>(s.dim)];
    --s.dim;
  }
  const int64_t size = std::max<int64_t>(space.sizes[static_cast<size_t>(s.dim)], 1);
  s.count = std::clamp<int64_t>(elements / std::max<int64_t>(s.inner, 1), 1, size);
  return s;
}

int64_t blocks_of(const IterationSpace& space, const Split& split) {
  const int64_t size = space.sizes[static_cast<size_t>(split.dim)];
  return space.numel(0, split.dim) * ((size + split.count - 1) / split.count);
}

int64_t block_index(const IterationSpace& space, const Split& split, int64_t b,
                    std::span<int64_t> index) {
  const int64_t size = space.sizes[static_cast<size_t>(split.dim)];
  const int64_t chunks = (size + split.count - 1) / split.count;
  const int64_t start = b % chunks * split.count;
  index[static_cast<size_t>(split.dim)] = start;
  b /= chunks;
  for (int64_t d = split.dim - 1; d >= 0; --d) {
    index[static_cast<size_t>(d)] = b % space.sizes[static_cast<size_t>(d)];
    b /= space.sizes[static_cast<size_t>(d)];
  }
  return std::min(split.count, size - start);
}

}  // namespace ebb::cpu
