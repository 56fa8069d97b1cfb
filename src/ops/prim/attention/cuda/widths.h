// Choice of a kernel by the width of heads, for attention and its gradient.
#pragma once

#include <cstdint>
#include <type_traits>

namespace ebb::ops::cuda {

// f of the narrowest of the ascending widths W that holds `width`, as a std::integral_constant; the
// last one is taken for any that is wider.
template <int W, int... Wider, class F>
auto with_width(int64_t width, const F& f) {
  if constexpr (sizeof...(Wider) > 0)
    if (width > W) return with_width<Wider...>(width, f);
  return f(std::integral_constant<int, W>{});
}

}  // namespace ebb::ops::cuda
