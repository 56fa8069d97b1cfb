// NumPy's SeedSequence: well-mixed words from integers and the place in a tree of seeds (after
// O'Neill's seed_seq for PCG, 2015).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb {

struct SeedSequence {
  std::vector<uint64_t> entropy = {};
  std::vector<uint64_t> spawn_key = {};
  size_t pool_size = 4;

  std::vector<uint32_t> generate(size_t words) const;
};

}  // namespace ebb
