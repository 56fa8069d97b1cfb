#include "ir/roofline.h"

#include <algorithm>

namespace ebb {

double roofline(const Cost& cost, DType dtype, const Device& device, Shares shares) {
  const Peaks peaks = device.peaks();
  const double flops = size_of(dtype) == 2 ? peaks.flops_16 : peaks.flops_f32;
  return 1e6 *
         std::max(cost.flops / (flops * shares.flops), cost.bytes / (peaks.bytes * shares.bytes));
}

double pass_over(double bytes, const Device& device) {
  constexpr double launch = 2;
  return bytes > 0 ? launch + 1e6 * bytes / device.peaks().bytes : 0;
}

}  // namespace ebb
