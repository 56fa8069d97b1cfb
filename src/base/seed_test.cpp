#include "base/seed.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "support/files.h"

namespace ebb {
namespace {

struct Seeded {
  Seed seed = 7;
  void fields(auto&& f) { f("seed", seed); }
};

TEST(seed, text__goes_from_0_to_2_to_the_64_less_1) {
  Seed seed;
  for (const char* text : {"0", "9223372036854775808", "18446744073709551615"}) {
    seed.parse(text);
    EXPECT_EQ(seed.text(), text);
  }
  EXPECT_EQ(uint64_t{seed}, UINT64_MAX);
  for (const char* text : {"", "-1", "+1", "1.0", "18446744073709551616", "0x1"})
    EXPECT_THROW(seed.parse(text), Error) << text;
  EXPECT_EQ(uint64_t{seed}, UINT64_MAX);
}

struct Drawable {
  DrawableSeed seed = 7;
  void fields(auto&& f) { f("seed", seed); }
};

TEST(seed, less_1__draws_one_where_that_is_allowed) {
  Drawable some;
  EXPECT_FALSE(some.seed.drawn());
  set_field(fields_of(some)[0], "-1");
  EXPECT_TRUE(some.seed.drawn());
  const uint64_t first = some.seed;
  EXPECT_EQ(some.seed.text(), std::to_string(first));
  set_fields_json(fields_of(some), R"({"seed": -1})", "some");
  EXPECT_TRUE(some.seed.drawn());
  EXPECT_NE(uint64_t{some.seed}, first);
  set_fields_json(fields_of(some), R"({"seed": 5})", "some");
  EXPECT_FALSE(some.seed.drawn());
  EXPECT_EQ(uint64_t{some.seed}, 5u);
  const std::string range = "expected a whole number from 0 to 2^64 - 1, or -1 to draw one (got ";
  testing::expect_error([&] { some.seed.parse("-2"); }, "seed: " + range + "'-2')");
  testing::expect_error([&] { set_fields_json(fields_of(some), R"({"seed": -2})", "some"); },
                        range + "-2)");
}

TEST(seed, json__is_a_number) {
  Seeded some{.seed = UINT64_MAX};
  const std::string text = fields_json(fields_of(some));
  EXPECT_EQ(text, "{\n  \"seed\": 18446744073709551615\n}");
  Seeded back;
  set_fields_json(fields_of(back), text, "some");
  EXPECT_EQ(uint64_t{back.seed}, UINT64_MAX);
  for (const char* wrong : {R"({"seed": -1})", R"({"seed": "1"})", R"({"seed": 1.5})"})
    EXPECT_THROW(set_fields_json(fields_of(back), wrong, "some"), Error) << wrong;
}

}  // namespace
}  // namespace ebb
