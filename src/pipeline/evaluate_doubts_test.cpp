#include "pipeline/evaluate_doubts.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

Evidence good() {
  return {.model = {28, 28, 1},
          .data = {28, 28, 1},
          .samples = 1000,
          .held_out = 10000,
          .features = 128,
          .accuracy = 0.91,
          .classes = 10,
          .conditional = true};
}

std::string only_doubt(const Evidence& e) {
  const auto all = doubts(e);
  return all.size() == 1 ? all[0] : "not one doubt";
}

TEST(Doubts, enough_of_everything__there_are_none) { EXPECT_TRUE(doubts(good()).empty()); }

TEST(Doubts, data_of_another_size__are_named) {
  Evidence e = good();
  e.data = {64, 48, 3};
  EXPECT_EQ(only_doubt(e),
            "the samples (28x28 in grey) are compared with images that were cropped, resized or "
            "converted to that (the data are 48x64 in colour)");
}

TEST(Doubts, ten_samples__say_how_many_are_needed) {
  Evidence e = good();
  e.samples = 10;
  const auto all = doubts(e);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0],
            "the Frechet distance stands on 10 samples and 10000 held-out images, and its 128 "
            "features need 129 of either: it is too large, and comparable only at the same numbers "
            "of images (the kernel distance has no such bias)");
  EXPECT_EQ(all[1], "shares of 10 samples are uncertain by up to 31.6 % (two standard errors)");
}

TEST(Doubts, classifier_that_is_often_wrong__is_named_with_chance) {
  Evidence e = good();
  e.accuracy = 0.7;
  EXPECT_TRUE(tells_classes(e));
  EXPECT_EQ(only_doubt(e),
            "the classifier is right on only 70.0 % of real images (10.0 % by chance): its verdict "
            "on samples says little, and distances in its features say little");
  e.own_features = false;
  EXPECT_EQ(only_doubt(e),
            "the classifier is right on only 70.0 % of real images (10.0 % by chance): its verdict "
            "on samples says little");
}

TEST(Doubts, classifier_that_hardly_tells__gives_no_share) {
  Evidence e = good();
  e.accuracy = 0.467;
  EXPECT_FALSE(tells_classes(e));
  EXPECT_EQ(only_doubt(e),
            "the classifier is right on only 46.7 % of real images (10.0 % by chance): the share "
            "of samples that it takes for their class is left out, and distances in its features "
            "say little");
  e.conditional = false;
  EXPECT_EQ(only_doubt(e),
            "the classifier is right on only 46.7 % of real images (10.0 % by chance): distances "
            "in its features say little");
  e.classes = 2;
  e.accuracy = 0.74;  // of two, half are right by chance
  EXPECT_FALSE(tells_classes(e));
}

TEST(Doubts, features_of_a_file__need_no_classifier) {
  Evidence e = good();
  e.accuracy = -1;
  e.conditional = false;
  e.samples = 129;
  EXPECT_TRUE(doubts(e).empty());
}

}  // namespace
}  // namespace ebb
