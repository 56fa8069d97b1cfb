// The order of training samples: reshuffled every epoch, without replacement, as a pure function of
// the position, so that resuming needs no state.
#pragma once

#include <cstdint>

namespace ebb::train {

// A permutation of [0, size): a Feistel network keyed by `key` and `epoch` (Luby and Rackoff 1988)
// over the next even power of two, walked along its cycle until it lands below `size` (Black and
// Rogaway 2002). 0 <= index < size.
int64_t permuted(int64_t index, int64_t size, uint64_t key, uint64_t epoch);

// The image at `position` (0, 1, 2, ... over all epochs) of a data set of `size` images.
inline int64_t image_at(int64_t position, int64_t size, uint64_t seed) {
  return permuted(position % size, size, seed, static_cast<uint64_t>(position / size));
}

}  // namespace ebb::train
