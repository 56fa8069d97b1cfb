// JSON of structs with fields().
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/json_size.h"
#include "base/parse_json.h"
#include "support/files.h"

namespace ebb {
namespace {

struct Thing {
  int64_t count = 3;
  double rate = 0.1;
  bool on = true;
  std::string name = "a \"b\"\n";
  std::vector<int64_t> sizes = {1, 2};
  std::vector<double> taps = {0.5, 1.0 / 3.0};
  void fields(auto&& f) {
    f("count", count);
    f("rate", rate);
    f("on", on);
    f("name", name);
    f("sizes", sizes);
    f("taps", taps);
  }
};

std::string error_of(Thing& t, std::string_view text) {
  return testing::error_of([&] { set_fields_json(fields_of(t), text, "thing.json"); });
}

// nlohmann's dump() calls itself at every level.
TEST(json, text_that_is_nested_too_deep__is_an_error) {
  Thing t;
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  for (const size_t n : {size_t{json_depth_limit}, size_t{1'000'000}})
    EXPECT_EQ(error_of(t, R"({"count": )" + nested(n) + "}"),
              "thing.json: must be nested at most 64 deep");
  EXPECT_TRUE(error_of(t, R"({"count": )" + nested(json_depth_limit - 1) + "}")
                  .starts_with("thing.json: 'count': expected a whole number"));
  EXPECT_EQ(json_object(nested(1'000'000)).fault, "must be nested at most 64 deep");
  EXPECT_THROW(strings_from_json(nested(1'000'000), "x"), Error);
}

TEST(json, brackets_in_strings__are_no_nesting) {
  const std::string brackets(1000, '{');
  EXPECT_EQ(strings_from_json(strings_json({brackets, "\\\"" + brackets}), "x"),
            (std::vector<std::string>{brackets, "\\\"" + brackets}));
}

TEST(json_size, names__are_of_the_object_that_has_most) {
  EXPECT_EQ(json_size("").names, 0u);
  const JsonSize size = json_size(R"({"a":{"b:":1,"c":[{"d":1},{"e":1}],"f":2},"g":"\":,["})");
  EXPECT_EQ(size.names, 3u);
  EXPECT_EQ(size.depth, 4u);
  EXPECT_EQ(size.values, 9u);
}

TEST(json_size, of_any_nesting__is_told) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '{') + R"("a":1,"b":2)" + std::string(depth - 1, '}') + R"("c":1)";
  };
  const JsonSize deep = json_size(nested(1'000'000));
  EXPECT_EQ(deep.depth, 1'000'000u);
  EXPECT_EQ(deep.names, 1u);
  EXPECT_EQ(json_size(nested(json_depth_limit)).names, 2u);
  EXPECT_EQ(json_size(nested(json_depth_limit + 1)).names, 1u);
  EXPECT_EQ(json_size(R"(}}]{"a":1,"b":1})").names, 2u);
}

TEST(json, fields__come_back_to_the_last_bit) {
  Thing a{.count = std::numeric_limits<int64_t>::min(),
          .rate = 0.1 + 0.2,
          .on = false,
          .name = "\xc3\xa4 \\ \t",
          .sizes = {},
          .taps = {1e-310, -0.0, std::numeric_limits<double>::infinity()}};
  Thing b;
  set_fields_json(fields_of(b), fields_json(fields_of(a)), "thing");
  EXPECT_EQ(fields_text(fields_of(a)), fields_text(fields_of(b)));
  EXPECT_EQ(a.rate, b.rate);
  EXPECT_TRUE(std::signbit(b.taps[1]));
}

TEST(json, some_fields__leave_the_others) {
  Thing t;
  set_fields_json(fields_of(t), R"({"rate": 2, "taps": [1, 2.5]})", "thing");
  EXPECT_EQ(t.rate, 2);
  EXPECT_EQ(t.count, 3);
  EXPECT_EQ(t.taps, (std::vector<double>{1, 2.5}));
}

TEST(json, mistakes__are_named_and_change_nothing) {
  Thing t;
  EXPECT_EQ(error_of(t, R"({"rate": 1, "coutn": 3})"),
            "thing.json: unknown field 'coutn' (did you mean 'count'?)");
  EXPECT_EQ(error_of(t, R"({"rate": 1, "count": 3.5})"),
            "thing.json: 'count': expected a whole number (got 3.5)");
  EXPECT_EQ(error_of(t, R"({"rate": 1, "count": 18446744073709551615})"),
            "thing.json: 'count': expected a whole number (got 18446744073709551615)");
  EXPECT_EQ(error_of(t, R"({"rate": 1, "on": 1})"),
            "thing.json: 'on': expected true or false (got 1)");
  EXPECT_EQ(error_of(t, R"({"rate": "fast"})"),
            "thing.json: 'rate': expected a number (got 'fast')");
  EXPECT_EQ(error_of(t, R"({"sizes": 3})"),
            "thing.json: 'sizes': expected a list of whole numbers (got 3)");
  EXPECT_EQ(error_of(t, R"({"rate": 1, "rate": 2})"),
            "thing.json: \"rate\" is given more than once");
  EXPECT_EQ(error_of(t, "[]"), "thing.json: expected a JSON object (got array)");
  EXPECT_EQ(error_of(t, "{\"rate\": 1"),
            "thing.json: not JSON: unexpected end of input; expected '}' (line 1, column 11, "
            "behind {\"rate\": 1)");
  EXPECT_EQ(t.rate, 0.1);
}

TEST(json, object_of_too_many_names__is_a_fault) {
  std::string text = "{";
  for (size_t i = 0; i < json_names_limit; ++i) text += str('"', i, "\":0,");
  EXPECT_EQ(json_object(text.substr(0, text.size() - 1) + "}").fault, "");
  EXPECT_EQ(json_object(text + "\"last\":0}").fault,
            "an object must have at most 2048 names (got 2049)");
}

TEST(json, faults__have_a_reason_and_a_place) {
  EXPECT_EQ(json_object("{\"a\": [1, {\"a\": 2}], \"b\": {\"a\": 3}}").fault, "");
  EXPECT_EQ(
      json_object("{\n  \"a\": 5,,\n}").fault,
      "not JSON: unexpected ','; expected string literal (line 2, column 10, behind \"a\": 5,)");
  EXPECT_EQ(
      json_object("{\"a\": \"\x89PNG\"}").fault,
      "not JSON: invalid string: ill-formed UTF-8 byte (line 1, column 8, behind {\"a\": \")");
  EXPECT_EQ(
      json_object("{\"b\": \"\xc3\xa4 and twenty-one more.\",,").fault,  // cut within a letter
      "not JSON: unexpected ','; expected string literal (line 1, column 33, behind and "
      "twenty-one more.\",)");
  EXPECT_EQ(json_object("{\"x\": {\"a\": 1, \"b\": {\"a\": 2}, \"a\": 3}}").fault,
            "\"a\" is given more than once");
  EXPECT_EQ(json_object("[1]").fault, "must be a JSON object");
}

TEST(json, object__keeps_the_order_of_its_names) {
  const JsonObject read = json_object(R"({"b": 1, "a": [2]})");
  EXPECT_EQ(read.fault, "");
  EXPECT_EQ(read.value.dump(), R"({"b":1,"a":[2]})");
}

TEST(json, numbers_too_large_to_hold__are_faults) {
  const std::string why = "not JSON that can be held: number overflow parsing '1e999'";
  EXPECT_EQ(json_object(R"({"a": [1e999]})").fault, why);
  Thing t;
  EXPECT_EQ(error_of(t, R"({"rate": 1e999})"), "thing.json: " + why);
  EXPECT_THROW(strings_from_json("[1e999]", "names"), Error);
}

TEST(json, strings__come_back) {
  const std::vector<std::string> names = {"a", "b \"c\""};
  EXPECT_EQ(strings_from_json(strings_json(names), "names"), names);
  EXPECT_THROW(strings_from_json("[1]", "names"), Error);
}

}  // namespace
}  // namespace ebb
