#include "base/options.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/files.h"

namespace ebb {
namespace {

struct SomeOptions {
  int64_t count = 3;
  double share = 0.5;
  bool on = false;
  std::string mode = "plain";
  std::vector<double> weights = {1, 2};
  void fields(auto&& f) {
    f("count", count, "how many");
    f("share", share, "of all");
    f("on", on, "or off");
    f("mode", mode, "of work");
    f("weights", weights, "of each");
  }
};

std::string check_error(const OptionTexts::value_type& text) {
  return testing::error_of([&] { check_option(describe<SomeOptions>(), text, "some"); });
}

TEST(options, check__knows_names_and_types) {
  const OptionTexts good = {
      {"count", "-7"}, {"share", "1e-3"}, {"on", "yes"}, {"mode", "any"}, {"weights", "[3,4]"}};
  for (const auto& text : good) EXPECT_EQ(check_error(text), "") << text.first;
  EXPECT_NE(check_error({"coumt", "1"}).find("did you mean 'count'?"), std::string::npos);
  const OptionTexts bad = {{"count", "1.5"}, {"share", "half"}, {"on", "2"}, {"weights", "[a]"}};
  for (const auto& text : bad)
    EXPECT_NE(check_error(text).find(text.first), std::string::npos) << text.first;
}

TEST(options, names__may_have_any_case) {
  const SomeOptions s = read_options<SomeOptions>({{"Count", "4"}, {"COUNT", "5"}}, "some");
  EXPECT_EQ(s.count, 5);  // the last one, as of equal names
  EXPECT_EQ(check_error({"SHARE", "0.25"}), "");
  testing::expect_error([] { parse_options("on=1,On=0", "some"); },
                        "option 'On' is given twice ('1', then '0')");
}

TEST(options, parse__lets_values_hold_commas) {
  const auto parsed = [](std::string_view text) { return parse_options(text, "some"); };
  EXPECT_EQ(parsed(""), OptionTexts());
  EXPECT_EQ(parsed("sigmas=5,1,0,rho=7"), (OptionTexts{{"sigmas", "5,1,0"}, {"rho", "7"}}));
  EXPECT_EQ(parsed("a=[3,4],b=x y"), (OptionTexts{{"a", "[3,4]"}, {"b", "x y"}}));
  for (const char* text : {"5,1", "=3", "a=1,=3"}) EXPECT_THROW(parsed(text), Error) << text;
}

TEST(options, with_defaults__shows_those_of_a_name) {
  const auto options = with_defaults(describe<SomeOptions>(), {{"share", "0.25"}, {"count", "+4"}});
  EXPECT_EQ(options[0].value, "4");
  EXPECT_EQ(options[1].value, "0.25");
  EXPECT_EQ(std::get<double>(options[1].typed), 0.25);
  EXPECT_EQ(options[3].value, "plain");
  EXPECT_EQ(options[0].help, "how many");
}

TEST(options, parse__lets_blanks_stand_around_names_and_values) {
  const OptionTexts want = {{"eta", "0.5"}, {"mode", "a b"}};
  EXPECT_EQ(parse_options("eta=0.5,mode=a b", "some"), want);
  EXPECT_EQ(parse_options(" eta = 0.5 ,\tmode = a b ", "some"), want);
  EXPECT_TRUE(parse_options("  ", "some").empty());
  EXPECT_EQ(parse_options("weights=[1,2],eta=1", "some"),
            (OptionTexts{{"weights", "[1,2]"}, {"eta", "1"}}));
}

TEST(options, parse__refuses_what_is_no_option_or_stands_twice) {
  const auto error = [](std::string_view text) {
    return testing::error_of([&] { parse_options(text, "some"); });
  };
  EXPECT_EQ(error("eta=0,s_noise=1,eta =1"), "some: option 'eta' is given twice ('0', then '1')");
  EXPECT_EQ(error("eta"), "some: options must be name=value  got 'eta'");
  EXPECT_EQ(error(" =3"), "some: options must be name=value  got '=3'");
  EXPECT_EQ(error("eta=1,,mode=a"), "some: no option stands before a comma  got 'eta=1,,mode=a'");
  EXPECT_EQ(error("eta=1, "), "some: no option follows the last comma  got 'eta=1,'");
}

}  // namespace
}  // namespace ebb
