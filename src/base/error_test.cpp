#include "base/error.h"

#include <filesystem>
#include <limits>
#include <ostream>
#include <sstream>

#include <gtest/gtest.h>

namespace ebb {
namespace {

struct Named {
  int n;
};
std::ostream& operator<<(std::ostream& out, const Named& v) { return out << "n=" << v.n; }

TEST(Message, parts__as_streams_write_them) {
  const char* pointer = "pointer";
  const char array[] = "array";
  EXPECT_EQ(str(pointer, ' ', array, ' ', std::string("string"), ' ', std::string_view("view")),
            "pointer array string view");
  EXPECT_EQ(str(-1, ' ', 2U, ' ', int64_t{-3}, ' ', size_t{4}, ' ', true), "-1 2 -3 4 1");
  EXPECT_EQ(str(0.1, ' ', 1.5F, ' ', 1e-300, ' ', 1234567.0), "0.1 1.5 1e-300 1.23457e+06");
  EXPECT_EQ(str(std::filesystem::path("a b"), ' ', Named{5}), "\"a b\" n=5");
  EXPECT_EQ(str(), "");
}

TEST(Message, numbers__have_the_digits_of_streams) {
  using Limits = std::numeric_limits<double>;
  for (const double v :
       {0.0, -0.0, 1e-5, 1e-4, 123456.0, 999999.5, 1234567.0, 1e16, Limits::min(), Limits::max(),
        Limits::denorm_min(), Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN()}) {
    std::ostringstream stream;
    stream << v << ' ' << -v << ' ' << static_cast<float>(v);
    EXPECT_EQ(str(v, ' ', -v, ' ', static_cast<float>(v)), stream.str());
  }
  EXPECT_EQ(str(int8_t{-5}, ' ', uint8_t{200}), "-5 200");  // not letters, as streams have them
}

TEST(Message, limits_of_integers__are_whole) {
  EXPECT_EQ(str(INT64_MIN, ' ', UINT64_MAX), "-9223372036854775808 18446744073709551615");
}

TEST(Message, text_with_zero_bytes__is_whole) { EXPECT_EQ(str(std::string("a\0b", 3)).size(), 3U); }

TEST(Require, what_does_not_hold__throws_the_message) {
  EXPECT_NO_THROW(require(true, "unused ", 1));
  try {
    require(false, "op: rule (", 3, ")");
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "op: rule (3)");
  }
}

}  // namespace
}  // namespace ebb
