#include "base/seed.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"

namespace ebb {
namespace {

struct Some {
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

TEST(seed, json__is_a_number) {
  Some some{.seed = UINT64_MAX};
  const std::string text = fields_json(fields_of(some));
  EXPECT_EQ(text, "{\n  \"seed\": 18446744073709551615\n}");
  Some back;
  set_fields_json(fields_of(back), text, "some");
  EXPECT_EQ(uint64_t{back.seed}, UINT64_MAX);
  for (const char* wrong : {R"({"seed": -1})", R"({"seed": "1"})", R"({"seed": 1.5})"})
    EXPECT_THROW(set_fields_json(fields_of(back), wrong, "some"), Error) << wrong;
}

}  // namespace
}  // namespace ebb
