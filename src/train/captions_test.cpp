#include "train/captions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace ebb::train {
namespace {

TEST(caption_of, plain__is_the_caption_behind_the_prefix) {
  EXPECT_EQ(caption_of("a red, apple", {}, 1, 0), "a red, apple");
  EXPECT_EQ(caption_of("apple", {.prefix = "photo of"}, 1, 0), "photo of apple");
  EXPECT_EQ(caption_of("", {.prefix = "photo"}, 1, 0), "photo");
}

TEST(pick_caption, several__come_equally_often_by_seed_and_image) {
  const std::vector<std::string> all = {"a", "b", "c"};
  std::map<std::string, int> count;
  for (int64_t image = 0; image < 3000; ++image) ++count[pick_caption(all, 5, image)];
  for (const std::string& c : all) EXPECT_NEAR(count[c], 1000, 130) << c;  // 5 deviations
  EXPECT_EQ(pick_caption({"one"}, 5, 7), "one");
}

TEST(caption_of, shuffled_tags__keep_the_first_and_lose_none) {
  const CaptionOptions o{.shuffle = true, .keep = 1, .prefix = "art,"};
  std::set<std::string> seen;
  for (int64_t image = 0; image < 50; ++image) {
    const std::string text = caption_of("me,  red ,big,,round", o, 3, image);
    EXPECT_TRUE(text.starts_with("art, me, ")) << text;
    EXPECT_EQ(text.size(), std::string("art, me, red, big, round").size());
    EXPECT_EQ(text, caption_of("me,  red ,big,,round", o, 3, image));
    seen.insert(text);
  }
  EXPECT_EQ(seen.size(), 6u);
}

TEST(caption_of, dropout__is_of_its_share) {
  int64_t dropped = 0;
  for (int64_t image = 0; image < 10000; ++image)
    dropped += caption_of("a", {.dropout = 0.1, .prefix = "p"}, 5, image).empty();
  EXPECT_NEAR(static_cast<double>(dropped), 1000, 100);
  EXPECT_EQ(caption_of("a", {.dropout = 1}, 5, 0), "");
}

TEST(captions, settings_that_cannot_be__are_refused) {
  EXPECT_THROW(check(CaptionOptions{.dropout = 1.5}), Error);
  EXPECT_THROW(check(CaptionOptions{.keep = 2}), Error);
}

}  // namespace
}  // namespace ebb::train
