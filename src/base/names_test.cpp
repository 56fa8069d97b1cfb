#include "base/names.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(nearest_name, swapped_letters__are_one_change) {
  const std::vector<std::string> known = {"heun", "euler", "cfg", "rho"};
  EXPECT_EQ(nearest_name("huen", known), "heun");
  EXPECT_EQ(nearest_name("cgf", known), "cfg");
  EXPECT_EQ(nearest_name("roh", known), "rho");
  EXPECT_EQ(nearest_name("eulre", known), "euler");
}

TEST(nearest_name, case__does_not_count) {
  const std::vector<std::string> known = {"comfy", "Euler"};
  EXPECT_EQ(nearest_name("ComfyUI", known), "comfy");
  EXPECT_EQ(nearest_name("EULRE", known), "Euler");
  EXPECT_TRUE(same_name("DPM++ 2M", "dpm_2m"));
  EXPECT_FALSE(same_name("dpm_2m", "dpm_3m"));
}

TEST(nearest_name, a_name_of_which_little_is_left__is_none) {
  const std::vector<std::string> known = {"lms", "nv", "ebb", "ve", "deis"};
  for (const char* far : {"dds", "xyz", "abc", "x", "", "ab", "mean"})
    EXPECT_EQ(nearest_name(far, known), "") << far;
  EXPECT_EQ(nearest_name("v", known), "nv");
  EXPECT_EQ(nearest_name("lmss", known), "lms");
}

TEST(find_name, case_counts_only_where_names_differ_by_it) {
  const std::vector<std::string> known = {"cat", "Dog", "dog", "Cow"};
  EXPECT_EQ(find_name("CAT", known), 0u);
  EXPECT_EQ(find_name("dog", known), 2u);
  EXPECT_EQ(find_name("DOG", known), known.size());
  EXPECT_EQ(find_name("cow", known), 3u);
  EXPECT_EQ(find_name("co", known), known.size());
  const std::vector<std::string> repeated = {"cow", "cat", "cat"};
  EXPECT_EQ(find_name("CAT", repeated), 1u);
}

TEST(same_name, signs_of_lists__are_no_part_of_a_name) {
  EXPECT_FALSE(same_name("karras", "karras,,"));
  EXPECT_FALSE(same_name("cfg", "cfg:"));
}

TEST(printable, control_characters__are_shown) {
  EXPECT_EQ(printable("a\x1b[2J\r\n\x7f\xc3\xa4\xc2\x9b"), "a\\x1b[2J\\x0d\n\\x7f\xc3\xa4\\x9b");
}

TEST(suggestion, names_that_stand_twice__are_listed_once) {
  const std::vector<std::string> known = {"eta", "s_noise", "eta"};
  EXPECT_EQ(suggestion("colour", known), " (known: eta, s_noise)");
  const std::vector<std::string> many = {"steps", "alphabet", "sizes", "xy",
                                         "stats", "style",    "spread"};
  EXPECT_EQ(suggestion("s", many), " (nearest of 7: xy, steps, sizes, stats, style)");
}

}  // namespace
}  // namespace ebb
