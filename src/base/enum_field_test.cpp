#include "base/enum_field.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace ebb {
namespace {

enum class Side : uint8_t { left, right, both };
constexpr ValueNames<3> value_names(Side) { return {"pad: side", {"left", "right", "both"}}; }

struct Pad {
  EnumField<Side> side = Side::right;
  void fields(auto&& f) { f("side", side); }
};

TEST(enum_field, fields__round_trip) {
  Pad p;
  EXPECT_EQ(fields_text(fields_of(p)), "{side=right}");
  for (const Side side : {Side::left, Side::right, Side::both}) {
    Pad from{.side = side}, to;
    parse_fields(fields_of(to), fields_text(fields_of(from)));
    EXPECT_EQ(to.side, side) << name_of(side);
  }
}

TEST(enum_field, other_texts__are_errors_that_list_the_names) {
  Pad p;
  for (const std::string text : {"up", "", "Left", "left "})
    EXPECT_EQ(testing::error_of([&] { set_field(fields_of(p)[0], text); }),
              "pad: side must be left, right or both (got '" + text + "')");
  EXPECT_EQ(p.side, Side::right) << "stays as it was";
}

}  // namespace
}  // namespace ebb
