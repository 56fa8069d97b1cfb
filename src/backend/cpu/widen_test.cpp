#include "backend/cpu/widen.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace ebb::cpu {
namespace {

template <class T>
void every_number(DType dtype) {
  constexpr int64_t repeats = 3;  // more than one block, and a rest that fills no vector
  std::vector<uint16_t> in(repeats * 65536 + 5);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
  std::vector<float> out(in.size());
  widen(dtype, in.data(), out.data(), static_cast<int64_t>(in.size()));
  for (size_t i = 0; i < in.size(); ++i) {
    const auto want = static_cast<float>(std::bit_cast<T>(in[i]));
    ASSERT_TRUE(out[i] == want || (std::isnan(out[i]) && std::isnan(want))) << i;
  }
}

TEST(widen, every_16_bit_number__is_exact) {
  every_number<f16>(DType::f16);
  every_number<bf16>(DType::bf16);
}

}  // namespace
}  // namespace ebb::cpu
