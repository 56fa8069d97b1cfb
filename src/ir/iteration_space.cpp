#include "ir/iteration_space.h"

namespace ebb {

int64_t IterationSpace::numel(int64_t first, int64_t last) const {
  int64_t n = 1;
  for (int64_t d = first; d < last; ++d) n *= sizes[static_cast<size_t>(d)];
  return n;
}

IterationSpace make_iteration_space(const Shape& shape, std::span<const Type> in,
                                    const std::vector<bool>& reduced,
                                    std::span<const Pitch> pitches) {
  std::vector<std::vector<int64_t>> full;
  for (const Type& t : in) full.push_back(broadcast_strides(t.shape, shape));
  for (size_t k = 0; k < pitches.size(); ++k)
    for (int64_t& stride : full[k]) stride = pitches[k].stride(stride);
  IterationSpace s;
  s.strides.resize(in.size());
  for (int64_t d = 0; d < shape.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    const int64_t size = shape[d];
    if (size == 1) continue;
    bool merge = !s.sizes.empty() && s.reduced.back() == reduced[i];
    for (size_t k = 0; k < in.size() && merge; ++k)
      merge = s.strides[k].back() == full[k][i] * size;
    if (merge) {
      s.sizes.back() *= size;
      for (size_t k = 0; k < in.size(); ++k) s.strides[k].back() = full[k][i];
      continue;
    }
    s.sizes.push_back(size);
    s.reduced.push_back(reduced[i]);
    for (size_t k = 0; k < in.size(); ++k) s.strides[k].push_back(full[k][i]);
  }
  if (s.sizes.empty()) {  // one element
    s.sizes.push_back(1);
    s.reduced.push_back(!reduced.empty() && reduced.back());
    for (auto& st : s.strides) st.push_back(0);
  }
  return s;
}

}  // namespace ebb
