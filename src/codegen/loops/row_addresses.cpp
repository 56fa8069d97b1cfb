#include "codegen/loops/row_addresses.h"

#include <algorithm>

namespace ebb::codegen {

bool repeats_each_step(const RowForm& form, const RowLayout& layout, size_t i) {
  const std::vector<int64_t>& strides = form.space.strides[i];
  const auto row = static_cast<size_t>(form.row_dim());
  return row + 1 < strides.size() &&
         std::all_of(strides.begin() + static_cast<int64_t>(row), strides.end() - 1,
                     [](int64_t s) { return s == 0; }) &&
         int64_t{layout.lanes} * layout.vector % form.run() == 0;
}

bool RowAddresses::is_flat(size_t i) const {
  const std::vector<int64_t>& strides = form_.space.strides[i];
  for (size_t d = static_cast<size_t>(form_.row_dim()); d + 1 < strides.size(); ++d)
    if (strides[d] != strides[d + 1] * form_.space.sizes[d + 1]) return false;
  return true;
}

std::vector<U64> RowAddresses::vectors(size_t i, U32 lane) {
  const int64_t run = form_.swaps.moves(i, layout_.vector) ? form_.swaps.run(i) : 0;
  std::vector<int64_t> sizes = {form_.length() / layout_.vector}, strides = {1};
  if (!is_flat(i)) {
    const auto row_dim = form_.row_dim();
    sizes.assign(form_.space.sizes.begin() + row_dim, form_.space.sizes.end());
    strides.assign(form_.space.strides[i].begin() + row_dim, form_.space.strides[i].end());
    sizes.back() /= layout_.vector;
  }
  strides.back() *= layout_.vector;
  for (int64_t& s : strides) s *= size_of(form_.in[i]);
  std::vector<U64>& known = known_[{run, strides}];
  if (!known.empty()) return known;
  const Coordinates split(b_, sizes);
  const Strides by(b_, strides);
  for (int s = 0; s < layout_.steps; ++s) {
    U32 at = lane + static_cast<uint32_t>(s * layout_.lanes);
    if (run != 0) at = swapped_vector(b_, at, run / layout_.vector);
    known.push_back(by.offset(split.of(at)));
  }
  return known;
}

U64 RowAddresses::in_segment(size_t i, std::span<const U64> base, std::vector<U32> at) {
  const RowSegments& p = form_.segments;
  const auto dim = static_cast<size_t>(p.dim);
  if (choice_.empty()) choice_.emplace_back(b_, p.widths, 1, at[dim]);
  std::vector<U64> rows;
  for (size_t k = 0; k < base.size(); ++k) {
    const auto first = form_.space.strides[i].begin();
    std::vector<int64_t> strides(first, first + form_.row_dim());
    for (size_t d = 0; d < dim; ++d)
      strides[d] = strides[d] / form_.space.sizes[dim] * (p.repeated[i] ? 1 : p.widths[k]);
    if (p.repeated[i]) strides[dim] = 0;
    at[dim] = choice_[0].column(k);
    rows.push_back(address(base[k], Strides(b_, strides).offset(at), form_.in[i]));
  }
  return choice_[0].choose(rows);
}

}  // namespace ebb::codegen
