#include "base/random.h"

namespace ebb {

void fill_uniform(const RandomKey& key, uint64_t first_block, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 4) {
    const Philox w = random_block(key, first_block + i / 4);
    for (size_t k = 0; k < 4 && i + k < out.size(); ++k) out[i + k] = uniform_from(w[k]);
  }
}

void fill_normal(const RandomKey& key, uint64_t first_block, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 4) {
    const Philox w = random_block(key, first_block + i / 4);
    const auto a = normals_from(w[0], w[1]), b = normals_from(w[2], w[3]);
    const float n[] = {a[0], a[1], b[0], b[1]};
    for (size_t k = 0; k < 4 && i + k < out.size(); ++k) out[i + k] = n[k];
  }
}

}  // namespace ebb
