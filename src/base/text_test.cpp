#include "base/text.h"

#include <gtest/gtest.h>

namespace ebb {

using Parts = std::vector<std::string_view>;

TEST(text, parts__stand_between_separators_without_blanks) {
  EXPECT_EQ(parted("", ","), Parts{""});
  EXPECT_EQ(parted("a", ","), Parts{"a"});
  EXPECT_EQ(parted(" a , b c ", ","), (Parts{"a", "b c"}));
  EXPECT_EQ(parted("a,", ","), (Parts{"a", ""}));
  EXPECT_EQ(parted(",a", ","), (Parts{"", "a"}));
  EXPECT_EQ(parted("a+b,c", ",+"), (Parts{"a", "b", "c"}));
}

TEST(text, items__are_none_in_an_empty_text_alone) {
  EXPECT_EQ(items_in("", ","), Parts{});
  EXPECT_EQ(items_in(" ", ","), Parts{""});
  EXPECT_EQ(items_in("1, 2", ","), (Parts{"1", "2"}));
  EXPECT_EQ(items_in("1,2,", ","), (Parts{"1", "2", ""}));
}

TEST(text, words__are_listed_with_commas) {
  EXPECT_EQ(listed({}), "");
  EXPECT_EQ(listed({"a", "b"}), "a, b");
}

}  // namespace ebb
