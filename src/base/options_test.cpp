#include "base/options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ebb {
namespace {

struct Some {
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

std::string error_of(const OptionTexts::value_type& text) {
  try {
    check_option(describe<Some>(), text, "some");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(options, check__knows_names_and_types) {
  const OptionTexts good = {
      {"count", "-7"}, {"share", "1e-3"}, {"on", "yes"}, {"mode", "any"}, {"weights", "[3,4]"}};
  for (const auto& text : good) EXPECT_EQ(error_of(text), "") << text.first;
  EXPECT_NE(error_of({"coumt", "1"}).find("did you mean 'count'?"), std::string::npos);
  const OptionTexts bad = {{"count", "1.5"}, {"share", "half"}, {"on", "2"}, {"weights", "[a]"}};
  for (const auto& text : bad)
    EXPECT_NE(error_of(text).find(text.first), std::string::npos) << text.first;
}

TEST(options, with_defaults__shows_those_of_a_name) {
  const auto options = with_defaults(describe<Some>(), {{"share", "0.25"}, {"count", "+4"}});
  EXPECT_EQ(options[0].value, "4");
  EXPECT_EQ(options[1].value, "0.25");
  EXPECT_EQ(std::get<double>(options[1].typed), 0.25);
  EXPECT_EQ(options[3].value, "plain");
  EXPECT_EQ(options[0].help, "how many");
}

}  // namespace
}  // namespace ebb
