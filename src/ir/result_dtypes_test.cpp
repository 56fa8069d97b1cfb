#include "ir/result_dtypes.h"

#include <gtest/gtest.h>

#include "base/optional_text.h"
#include "support/files.h"

namespace ebb {
namespace {

using testing::error_of;

struct Uses {
  ResultDType one;
  ResultDTypes all;
  OptionalValue<ResultDTypes> more = {};
  void fields(auto&& f) {
    f("one", one);
    f("all", all);
    f("more", more);
  }
};

std::string text_of(Uses u) { return fields_text(fields_of(u)); }

TEST(result_dtypes, fields__round_trip) {
  const Uses full{DType::bf16, {DType::f32, DType::bf16, DType::i64}, {DType::f16}};
  EXPECT_EQ(text_of({}), "{one= all=}");
  EXPECT_EQ(text_of({DType::f32, DType::f16}), "{one=f32 all=f16}");
  EXPECT_EQ(text_of(full), "{one=bf16 all=f32,bf16,i64 more=f16}");
  for (const Uses& u : {Uses{}, full}) {
    Uses read{DType::u8, DType::u8};
    parse_fields(fields_of(read), text_of(u));
    EXPECT_EQ(text_of(read), text_of(u));
  }
}

TEST(result_dtypes, one_stands_for_all__and_none_for_the_default) {
  using List = std::vector<DType>;
  EXPECT_EQ(ResultDType().value_or(DType::f16), DType::f16);
  EXPECT_EQ(ResultDType(DType::f32).value_or(DType::f16), DType::f32);
  EXPECT_EQ(ResultDTypes().expanded(2, DType::bf16), (List{DType::bf16, DType::bf16}));
  EXPECT_EQ(ResultDTypes(DType::f32).expanded(2, DType::bf16), (List{DType::f32, DType::f32}));
  EXPECT_EQ(ResultDTypes({DType::f32, DType::f16}).expanded(2, DType::bf16),
            (List{DType::f32, DType::f16}));
  EXPECT_TRUE(ResultDTypes().expanded(0, DType::f32).empty());
  EXPECT_EQ(error_of([] {
              (void)ResultDTypes({DType::f32, DType::f16}).expanded(3, DType::f32);
            }),
            "expression: dtypes (f32,f16) must be one, or one a result (3)");
}

TEST(result_dtypes, other_texts__are_errors) {
  Uses u{DType::f16, {DType::f32, DType::f16}};
  const std::string known = " (known: f32, bf16, f16, i32, i64, u8)";
  EXPECT_EQ(error_of([&] { u.one.parse("wide"); }), "dtype: unknown name 'wide'" + known);
  EXPECT_EQ(error_of([&] { u.all.parse("f32,wide"); }), "dtype: unknown name 'wide'" + known);
  EXPECT_EQ(error_of([&] { u.all.parse("f32,,f16"); }), "dtype: unknown name ''" + known);
  EXPECT_EQ(text_of(u), "{one=f16 all=f32,f16}") << "stays as it was";
}

}  // namespace
}  // namespace ebb
