#include "train/sample_order.h"

#include <bit>

#include "base/hash.h"
#include "base/random.h"

namespace ebb::train {

int64_t permuted(int64_t index, int64_t size, uint64_t key, uint64_t epoch) {
  constexpr uint32_t rounds = 8;  // 4 suffice in theory for large sets; small ones profit
  constexpr uint32_t use = static_cast<uint32_t>(fnv1a("order"));
  const int bits = (std::bit_width(static_cast<uint64_t>(size - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  uint64_t x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> bits, right = x & mask;
    for (uint32_t round = 0; round < rounds; ++round) {
      const Philox f = random_block({key, epoch, round, use}, right);
      const uint64_t mixed = left ^ ((uint64_t{f[1]} << 32 | f[0]) & mask);
      left = right;
      right = mixed;
    }
    x = left << bits | right;
  } while (x >= static_cast<uint64_t>(size));
  return static_cast<int64_t>(x);
}

}  // namespace ebb::train
