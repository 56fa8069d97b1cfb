#include "core/not_finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace ebb {
namespace {

template <class T>
class NotFinite : public ::testing::Test {};
using Floats = ::testing::Types<float, bf16, f16>;
TYPED_TEST_SUITE(NotFinite, Floats);

template <class T>
int64_t found(const std::vector<T>& v) {
  return find_not_finite({dtype_of_t<T>::value, {static_cast<int64_t>(v.size())}}, v.data());
}

TYPED_TEST(NotFinite, first__is_found_wherever_it_stands) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {inf, -inf, std::numeric_limits<float>::quiet_NaN()})
    for (const size_t at : {0, 1, 4095, 4096, 9999}) {
      std::vector<TypeParam> v(10'000, TypeParam(-2.5F));
      v[at] = v.back() = TypeParam(bad);
      EXPECT_EQ(found(v), static_cast<int64_t>(at)) << bad;
    }
}

TYPED_TEST(NotFinite, numbers__are_not_found) {
  EXPECT_EQ(found(std::vector<TypeParam>{}), -1);
  EXPECT_EQ(found(std::vector<TypeParam>(5000, TypeParam(65504.0F))), -1);  // f16's largest
}

TEST(not_finite, integers__are_finite) {
  const std::vector<int32_t> v(8, -1);
  EXPECT_EQ(find_not_finite({DType::i32, {8}}, v.data()), -1);
}

}  // namespace
}  // namespace ebb
