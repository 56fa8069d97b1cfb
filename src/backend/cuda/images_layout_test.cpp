// How images are cut: by what the device says that it has room for, and not where pieces are large.
#include <algorithm>

#include <gtest/gtest.h>

#include "backend/cuda/images_text.h"

namespace ebb::cuda {
namespace {

Scalar in(int64_t i) { return Scalar::input(i); }

struct Size {
  int64_t images, pixels, channels;
};

// x -> x less the mean of its group; with two tensors, their product besides.
ImagesForm centred(Size s, bool two) {
  constexpr int64_t groups = 32;
  const Scalar x = two ? in(0) * in(1) : in(0);
  const int64_t first = two ? 2 : 1;
  const Scalar results[] = {x, in(first), x - in(first + 1)};
  ImagesForm f{.expr = Expr(first + 2, results),
               .in = {{.dtype = DType::bf16, .streams = true}},
               .totals = {ImagesTotal::pixels, ImagesTotal::groups},
               .out = {DType::bf16},
               .per_channel = {false},
               .images = s.images,
               .pixels = s.pixels,
               .channels = s.channels,
               .groups = groups};
  if (two) f.in.push_back(f.in[0]);
  return f;
}

constexpr Size usual = {32, 4096, 192}, large = {2, 16384, 320};

TEST(images_layout, device_without_room_for_wide_clusters__takes_narrow_ones) {
  constexpr int widest = 3, multiprocessors = 132;
  const ImagesDevice device{.room = [](int cluster, int64_t blocks) -> int64_t {
    return cluster > widest ? 0 : multiprocessors * blocks / cluster;
  }};
  const auto ways = images_layouts(centred(usual, false), device, false);
  ASSERT_FALSE(ways.empty());
  for (const ImagesLayout& l : ways) EXPECT_LE(l.cluster, widest);
}

TEST(images_layout, device_that_gives_no_answer__takes_clusters_that_all_chips_have) {
  const auto ways = images_layouts(centred(usual, false), {}, false);
  ASSERT_FALSE(ways.empty());
  for (const ImagesLayout& l : ways) EXPECT_LE(l.cluster, 8);
}

TEST(images_layout, one_tensor_in_pieces_of_many_multiprocessors__is_left_to_others) {
  const ImagesDevice device{.room = [](int cluster, int64_t blocks) {
    return ImagesDevice().multiprocessors * blocks / cluster;
  }};
  EXPECT_FALSE(images_layouts(centred(usual, false), device, false).empty());
  EXPECT_TRUE(images_layouts(centred(large, false), device, false).empty());
  EXPECT_FALSE(images_layouts(centred(large, true), device, false).empty());
}

TEST(images_layout, whether_one_fits__asks_the_device_once_at_most) {
  int asked = 0;
  const ImagesDevice device{.room = [&](int cluster, int64_t blocks) {
    ++asked;
    return ImagesDevice().multiprocessors * blocks / cluster;
  }};
  for (const Size size : {usual, large, Size{2, 4096, 64}, Size{1, 1 << 22, 64}})
    for (const bool two : {false, true}) {
      const bool any = !images_layouts(centred(size, two), device, false).empty();
      EXPECT_GE(asked, any ? 5 : 0) << size.pixels;
      asked = 0;
      EXPECT_EQ(images_fit(centred(size, two), device), any) << size.pixels;
      EXPECT_LE(asked, 1) << size.pixels;
    }
}

}  // namespace
}  // namespace ebb::cuda
