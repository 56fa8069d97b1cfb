// expect_equal: two graphs compute the same.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <vector>

#include "reference.h"

namespace ebb::test {

inline std::vector<double> noise(const Shape& shape, std::string_view key) {
  std::vector<double> v;
  const double step = 0.37 + 0.01 * static_cast<double>(key.size() + static_cast<size_t>(key[0]));
  for (int64_t i = 0; i < shape.numel(); ++i) v.push_back(std::sin(step * static_cast<double>(i)));
  return v;
}

// Both graphs give the same results for random inputs.
inline void expect_equal(const Graph& a, const Graph& b) {
  RefInputs in;
  for (const Source& s : a.sources()) {
    const Shape& shape = a.type(s.value).shape;
    in[s.name] = ref_array(shape, noise(shape, s.name));
  }
  const auto x = evaluate_reference(a, in), y = evaluate_reference(b, in);
  for (const NamedValue& o : a.outputs()) {
    const RefArray &want = output_of(a, x, o.name), &got = output_of(b, y, o.name);
    ASSERT_EQ(want.v.size(), got.v.size()) << o.name;
    for (size_t i = 0; i < want.v.size(); ++i)
      EXPECT_NEAR(want.v[i], got.v[i], 1e-9 * (1 + std::fabs(want.v[i]))) << o.name << ' ' << i;
  }
}

}  // namespace ebb::test
