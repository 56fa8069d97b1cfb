#include "ranks/agree.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/files.h"

namespace ebb::ranks {
namespace {

// A group whose other ranks say what they are told to.
class Told final : public RankGroup {
 public:
  explicit Told(std::vector<std::vector<Fact>> others) : others_(std::move(others)) {}
  int64_t rank() const override { return 0; }
  int64_t ranks() const override { return static_cast<int64_t>(others_.size()) + 1; }
  int64_t local_rank() const override { return 0; }
  std::vector<std::string> gather(std::string_view own) override {
    std::vector<std::string> out{std::string(own)};
    for (const auto& facts : others_) {
      std::string said;
      Recorder recorder(said);
      check_equal(recorder, facts);
      out.push_back(said);
    }
    return out;
  }

 private:
  struct Recorder final : RankGroup {
    explicit Recorder(std::string& said) : text(said) {}
    int64_t rank() const override { return 0; }
    int64_t ranks() const override { return 1; }
    int64_t local_rank() const override { return 0; }
    std::vector<std::string> gather(std::string_view own) override {
      text = own;
      return {text};
    }
    std::string& text;
  };
  std::vector<std::vector<Fact>> others_;
};

std::string difference(const std::vector<std::vector<Fact>>& all) {
  Told group({all.begin() + 1, all.end()});
  return testing::error_of([&] { check_equal(group, all[0]); });
}

TEST(agree, equal__nothing) {
  const std::vector<Fact> facts = {{"version", "1"}, {"config", R"({"a":{"b":1},"c":[1,2]})"}};
  EXPECT_EQ(difference({facts, facts, facts}), "");
  // the order of fields is no difference
  EXPECT_EQ(difference({{{"c", R"({"a":1,"b":2})"}}, {{"c", R"({"b":2,"a":1})"}}}), "");
}

TEST(agree, another_value__names_the_field_and_the_ranks) {
  EXPECT_EQ(difference({{{"version", "1"}}, {{"version", "2"}}, {{"version", "1"}}}),
            "ranks: version must be the same on all (1 on ranks 0, 2; 2 on rank 1)");
  EXPECT_EQ(difference({{{"config", R"({"train":{"lr":0.1,"x":1}})"}},
                        {{"config", R"({"train":{"lr":0.2,"x":1}})"}}}),
            "ranks: config.train.lr must be the same on all (0.1 on rank 0; 0.2 on rank 1)");
}

TEST(agree, several_differences__the_first_and_the_names_of_others) {
  EXPECT_EQ(
      difference({{{"a", "1"}, {"b", "1"}, {"c", "1"}}, {{"a", "2"}, {"b", "1"}, {"c", "3"}}}),
      "ranks: a must be the same on all (1 on rank 0; 2 on rank 1; so must c)");
}

TEST(agree, a_fact_that_one_lacks) {
  EXPECT_EQ(difference({{{"a", "1"}}, {{"a", "1"}, {"b", "x"}}}),
            "ranks: b must be the same on all (not there on rank 0; x on rank 1)");
}

TEST(agree, long_values_and_control_characters__are_readable) {
  const std::string error = difference({{{"a", std::string(500, 'x')}}, {{"a", "\x1b[31m"}}});
  EXPECT_LT(error.size(), 200u);
  EXPECT_NE(error.find(R"(\x1b[31m)"), std::string::npos) << error;
}

TEST(agree, bytes_that_are_no_text__differ_without_a_crash) {
  EXPECT_NE(difference({{{"a", "\xff"}}, {{"a", "b"}}}), "");
}

TEST(agree, rank_lists) {
  EXPECT_EQ(ranks_text({}), "");
  EXPECT_EQ(ranks_text({3}), "3");
  EXPECT_EQ(ranks_text({0, 1}), "0, 1");
  EXPECT_EQ(ranks_text({0, 1, 2, 5, 7, 8, 9}), "0-2, 5, 7-9");
}

}  // namespace
}  // namespace ebb::ranks
