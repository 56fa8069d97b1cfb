// SwapsForm: operands of generated kernels whose neighbouring runs are in each other's place. Runs
// of whole vectors are read at another address, shorter ones change places in a thread's vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "codegen/index.h"

namespace ebb::codegen {

struct SwapsForm {
  std::vector<int64_t> runs;  // by operand, in elements of the last dim; 0 and []: not swapped

  int64_t run(size_t i) const { return i < runs.size() ? runs[i] : 0; }
  bool any() const {
    for (const int64_t r : runs)
      if (r > 0) return true;
    return false;
  }
  // Whether a vector holds both runs of a pair, so that its elements change places.
  bool within(size_t i, int64_t vector) const { return run(i) > 0 && vector % (2 * run(i)) == 0; }
  // Whether vectors of operand i lie elsewhere.
  bool moves(size_t i, int64_t vector) const { return run(i) > 0 && !within(i, vector); }
  // The element of operand i's vector that is read as element e.
  int element(size_t i, int64_t vector, int e) const {
    if (!within(i, vector)) return e;
    const auto r = static_cast<int>(run(i));
    return e / r % 2 == 0 ? e + r : e - r;
  }
  // The widest divisor of `vector` with which every operand's pairs of runs lie in a vector, or
  // vectors in runs.
  int64_t widest(int64_t vector) const {
    for (bool changed = true; changed;) {
      changed = false;
      for (const int64_t r : runs) {
        if (r == 0 || vector % (2 * r) == 0 || r % vector == 0) continue;
        vector = std::gcd(vector, r);
        changed = true;
      }
    }
    return vector;
  }
};

// The number of the vector that is read as vector `at` of a last dim with runs of `vectors` each.
inline U32 swapped_vector(Builder& b, U32 at, int64_t vectors) {
  const U32 run = vectors == 1 ? at : quotient(b, at, vectors);
  const U32 second = run & 1u;
  // + vectors from the first run of a pair, - vectors from the second
  return at + b.number(vectors) - second * b.number(2 * vectors);
}

}  // namespace ebb::codegen
