#include "train/buckets.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "train/bucket_order.h"

namespace ebb::train {
namespace {

TEST(bucket_sizes, of_512__are_kohyas) {
  const auto all = bucket_sizes({});
  const std::vector<PictureSize> want = {
      {256, 832}, {256, 896}, {256, 960}, {256, 1024}, {320, 704}, {320, 768},
      {384, 640}, {448, 576}, {512, 512}, {576, 448},  {640, 384}, {704, 320},
      {768, 320}, {832, 256}, {896, 256}, {960, 256},  {1024, 256}};
  EXPECT_EQ(all, want);
}

TEST(fit_of, pictures__cover_the_bucket_of_their_ratio) {
  EXPECT_EQ(fit_of({1000, 1000}, {}), (Fit{{512, 512}, {512, 512}}));
  EXPECT_EQ(fit_of({1500, 1000}, {}), (Fit{{640, 427}, {640, 384}}));
  EXPECT_EQ(fit_of({100, 400}, {}).bucket, (PictureSize{256, 1024}));
  EXPECT_EQ(fit_of({1500, 1000}, {.buckets = false}), (Fit{{768, 512}, {512, 512}}));
}

TEST(fit_of, no_upscale__leaves_small_pictures) {
  const BucketOptions o{.no_upscale = true};
  EXPECT_EQ(fit_of({200, 150}, o), (Fit{{200, 150}, {192, 128}}));
  const Fit large = fit_of({1500, 1000}, o);
  EXPECT_EQ(large.bucket, (PictureSize{576, 384}));
  EXPECT_THROW(fit_of({60, 500}, o), Error);
}

TEST(buckets, settings_that_cannot_be__are_refused) {
  EXPECT_THROW(check({.resolution = 100}), Error);
  EXPECT_THROW(check({.step = 12}), Error);
  EXPECT_THROW(check({.min = 2048}), Error);
  EXPECT_THROW(check({.resolution = 128}), Error);                // below the smallest side
  EXPECT_THROW(check({.resolution = 2048}), Error);               // above the largest
  EXPECT_THROW(check({.step = 32, .min = 48}), Error);            // no multiple
  EXPECT_NO_THROW(check({.resolution = 128, .buckets = false}));  // a square
  EXPECT_NO_THROW(check({.resolution = 64, .step = 64, .min = 64, .max = 64}));
}

TEST(bucket_order, an_epoch_beyond_memory__is_refused) {
  const std::vector<BucketOrder::Item> many(60, {{512, 512}, 1'000'000});
  EXPECT_THROW(BucketOrder(many, 2, 7), Error);
}

std::vector<BucketOrder::Item> items() {
  std::vector<BucketOrder::Item> out;
  for (int i = 0; i < 5; ++i) out.push_back({{512, 512}, i == 0 ? 3 : 1});
  for (int i = 0; i < 3; ++i) out.push_back({{640, 384}, 1});
  return out;
}

TEST(bucket_order, an_epoch__has_each_picture_as_often_as_it_is_repeated) {
  const BucketOrder order(items(), 2, 7);
  EXPECT_EQ(order.batches(), 4 + 2);
  EXPECT_EQ(order.filling(), 1 + 1);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> count(8, 0);
    for (int64_t k = 0; k < 6; ++k) {
      const auto batch = order.at(epoch * 6 + k);
      ASSERT_EQ(batch.pictures.size(), 2u);
      for (const int64_t p : batch.pictures) {
        EXPECT_EQ(items()[static_cast<size_t>(p)].bucket, batch.bucket);
        ++count[static_cast<size_t>(p)];
      }
    }
    EXPECT_GE(count[0], 3);
    for (const int64_t c : count) EXPECT_GE(c, 1);
  }
}

TEST(bucket_order, seeds_and_epochs__give_other_orders) {
  const BucketOrder a(items(), 2, 7), again(items(), 2, 7), b(items(), 2, 8);
  const auto list = [](const BucketOrder& o, int64_t epoch) {
    std::vector<int64_t> out;
    for (int64_t k = 0; k < 6; ++k)
      for (const int64_t p : o.at(epoch * 6 + k).pictures) out.push_back(p);
    return out;
  };
  EXPECT_EQ(list(a, 1), list(again, 1));
  EXPECT_NE(list(a, 0), list(a, 1));
  EXPECT_NE(list(a, 0), list(b, 0));
}

}  // namespace
}  // namespace ebb::train
