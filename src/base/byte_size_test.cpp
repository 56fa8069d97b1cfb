#include "base/byte_size.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(parse_size, usual_spellings__are_understood) {
  for (const char* text : {"5GB", "5gb", "5 GB", "5G", " 5 g ", "5000MB", "5000 M"})
    EXPECT_EQ(parse_size(text), 5'000'000'000) << text;
  for (const char* text : {"800MiB", "800 mib", "0.78125GiB"})
    EXPECT_EQ(parse_size(text), 800 * (int64_t{1} << 20)) << text;
  EXPECT_EQ(parse_size("1.5M"), 1'500'000);
}

TEST(parse_size, other_texts__are_none) {
  for (const char* text : {"", "abc", "5", "GB", "-1GB", "0GB", "5GBs", "5 G B", "5B", "5kB", "nan",
                           "infGB", "1e30GB", "0.0000001MB"})
    EXPECT_FALSE(parse_size(text).has_value()) << text;
}

}  // namespace
}  // namespace ebb
