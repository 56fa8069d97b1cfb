// The one table of tolerances; docs/numerics.md derives it.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/dtype.h"

namespace ebb::test {

// Largest relative error of rounding once to nearest: half a unit in the last place.
constexpr double rounding_unit(DType t) {
  switch (t) {
    case DType::f32: return 0x1p-24;
    case DType::bf16: return 0x1p-8;
    case DType::f16: return 0x1p-11;
    default: return 0;
  }
}

// Half of the distance between the numbers next to 0, where the relative error is unbounded.
constexpr double smallest_rounding(DType t) { return t == DType::f16 ? 0x1p-25 : 0; }

// What a kernel that computes in f32 may be off by. `y`: the exact result, of dtype `out`.
// `terms`: rounded operations behind one result. `condition`: how far a result moves, at most over
// the tensor, when every input moves by one relative f32 rounding unit, divided by that unit.
inline double tolerance(DType out, double y, double terms, double condition) {
  const double f32 = rounding_unit(DType::f32);
  const double computed = f32 * (4 + std::sqrt(terms)) * (std::fabs(y) + condition);
  return rounding_unit(out) * (std::fabs(y) + computed) + computed + smallest_rounding(out);
}

// What roundings of values on the way to a narrower dtype, of unit `inner`, add to that: they are
// like moving the inputs by that unit. 0 if there are none.
inline double inner_tolerance(double inner, double y, double condition) {
  return 2 * inner * (std::fabs(y) + condition);
}

// Analytic gradients in double against central differences: the differences lose half of the
// digits.
constexpr double difference_step = 1e-5;
constexpr double difference_tolerance = 1e-6;

}  // namespace ebb::test
