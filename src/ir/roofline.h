// Roofline: the time of a use by what it moves and computes, and the device's peaks.
#pragma once

#include "core/device.h"
#include "ir/op.h"

namespace ebb {

// The shares of its device's peaks that a kernel reaches on uses that fill the device.
struct Shares {
  double flops = 1, bytes = 1;
};

// In microseconds. `dtype`: what is multiplied.
double roofline(const Cost& cost, DType dtype, const Device& device, Shares shares);

// In microseconds: a launch of its own that moves so many bytes; no bytes: none.
double pass_over(double bytes, const Device& device);

// Kernel::cost of a kernel that reaches these shares, in per cent, whatever the sizes.
template <int flops, int bytes>
double roofline(const Signature& s, const Device& device) {
  const DType dtype = s.in.empty() ? DType::f32 : s.in[0].dtype;
  return roofline(cost_of(s), dtype, device, {flops / 100.0, bytes / 100.0});
}

}  // namespace ebb
