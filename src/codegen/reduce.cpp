#include "codegen/reduce.h"

namespace ebb::codegen {

std::vector<F32> subgroup_reduce(Builder& b, std::vector<F32> values, int lanes,
                                 const Combine& combine) {
  for (int offset = lanes / 2; offset > 0; offset /= 2)
    for (size_t k = 0; k < values.size(); ++k)
      values[k] = combine(k, values[k], b.shuffle_xor(values[k], offset));
  return values;
}

std::vector<F32> block_reduce(Builder& b, const std::vector<F32>& values, U32 thread, int threads,
                              const Combine& combine) {
  const int subgroups = threads / b.target().subgroup;
  const SharedArray memory = b.shared_array(4, static_cast<int64_t>(values.size()) * subgroups);
  const auto offset = [&](size_t k) { return int64_t{4} * subgroups * static_cast<int64_t>(k); };
  const SharedAddress own = b.at(memory, b.subgroup(thread));
  b.when(b.lane(thread) == 0u, [&] {
    for (size_t k = 0; k < values.size(); ++k)
      b.store(std::span(&values[k], 1), SharedAddress{own.base, offset(k)});
  });
  b.barrier();
  const SharedAddress from = b.at(memory, thread & static_cast<uint32_t>(subgroups - 1));
  std::vector<F32> all;
  for (size_t k = 0; k < values.size(); ++k)
    all.push_back(b.element(b.load(DType::f32, 1, SharedAddress{from.base, offset(k)}), 0));
  return subgroup_reduce(b, all, subgroups, combine);
}

}  // namespace ebb::codegen
