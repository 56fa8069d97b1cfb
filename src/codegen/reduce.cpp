#include "codegen/reduce.h"

#include <algorithm>

namespace ebb::codegen {

std::vector<F32> subgroup_reduce(Builder& b, std::vector<F32> values, int lanes,
                                 const Combine& combine) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = combine(k, values[k], b.shuffle_xor(values[k], offset));
  return values;
}

std::vector<F32> block_reduce(Builder& b, const std::vector<F32>& values, int threads,
                              const Combine& combine) {
  const int subgroup = b.target().subgroup, subgroups = threads / subgroup;
  const SharedArray memory = b.shared_array(4, static_cast<int64_t>(values.size()) * subgroups);
  const auto offset = [&](size_t k) { return int64_t{4} * subgroups * static_cast<int64_t>(k); };
  const SharedAddress own = b.at(memory, b.subgroup_index());
  b.when(b.lane() == 0u, [&] {
    for (size_t k = 0; k < values.size(); ++k)
      b.store(std::span(&values[k], 1), SharedAddress{own.base, offset(k)});
  });
  b.barrier();
  const int readers = std::min(subgroups, subgroup);  // lanes; each reads every so many-th value
  const SharedAddress from = b.at(memory, b.lane(readers));
  std::vector<F32> all;
  for (size_t k = 0; k < values.size(); ++k)
    for (int first = 0; first < subgroups; first += readers) {
      const SharedAddress at{from.base, offset(k) + int64_t{4} * first};
      const F32 v = b.element(b.load(DType::f32, 1, at), 0);
      if (first == 0)
        all.push_back(v);
      else
        all.back() = combine(k, all.back(), v);
    }
  return subgroup_reduce(b, all, readers, combine);
}

}  // namespace ebb::codegen
