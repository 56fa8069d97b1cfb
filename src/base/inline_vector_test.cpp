#include "base/inline_vector.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(InlineVector, keeps_its_elements_when_they_outgrow_it) {
  InlineVector<int, 3> v;
  EXPECT_TRUE(v.empty());
  for (int i = 0; i < 8; ++i) {
    v.push_back(10 * i);
    ASSERT_EQ(v.size(), static_cast<size_t>(i) + 1);
    for (int k = 0; k <= i; ++k) EXPECT_EQ(v[static_cast<size_t>(k)], 10 * k);
  }
  const InlineVector<int, 3> copy = v;
  EXPECT_TRUE(std::ranges::equal(copy, v));
  EXPECT_NE(copy.data(), v.data());
}

// A constant expression may not read elements that have no value.
constexpr bool copies_have_equal_elements(int count) {
  InlineVector<int, 3> v;
  for (int i = 0; i < count; ++i) v.push_back(i);
  const InlineVector<int, 3> copy = v;
  InlineVector<int, 3> assigned;
  assigned.push_back(7);
  assigned = copy;
  return std::ranges::equal(copy, v) && std::ranges::equal(assigned, v);
}
static_assert(copies_have_equal_elements(0));
static_assert(copies_have_equal_elements(1));
static_assert(copies_have_equal_elements(5));

constexpr bool moves_leave_nothing(int count) {
  InlineVector<int, 3> v;
  for (int i = 0; i < count; ++i) v.push_back(i);
  const InlineVector<int, 3> copy = v;
  InlineVector<int, 3> moved = std::move(v);
  bool ok = std::ranges::equal(moved, copy) && v.empty() && v.begin() == v.end();
  InlineVector<int, 3> assigned;
  for (int i = 0; i < 6; ++i) assigned.push_back(7);
  assigned = std::move(moved);
  ok = ok && std::ranges::equal(assigned, copy) && moved.empty();
  moved.push_back(3);  // it is as a new one
  return ok && moved.size() == 1 && moved[0] == 3;
}
static_assert(moves_leave_nothing(2));
static_assert(moves_leave_nothing(5));

}  // namespace
}  // namespace ebb
