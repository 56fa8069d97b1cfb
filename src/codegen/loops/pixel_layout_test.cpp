// Layouts of loops over pixels follow the device's cluster occupancy, and avoid large resident
// tiles.
#include <algorithm>

#include <gtest/gtest.h>

#include "codegen/loops/pixel_kernel.h"
#include "support/expressions.h"

namespace ebb::codegen {
namespace {

using testing::in;
using testing::target;

struct Size {
  int64_t images, pixels, channels;
};

// x -> x minus the mean of its group; with two tensors, also their product.
PixelForm centred(Size s, bool two) {
  constexpr int64_t groups = 32;
  const Scalar x = two ? in(0) * in(1) : in(0);
  const int64_t first = two ? 2 : 1;
  const Scalar results[] = {x, in(first), x - in(first + 1)};
  PixelForm f{.expr = Expr(first + 2, results),
              .in = {{.dtype = DType::bf16, .streams = true}},
              .reductions = {PixelReduction::pixels, PixelReduction::groups},
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

TEST(pixel_layout, device_without_room_for_wide_clusters__takes_narrow_ones) {
  constexpr int widest = 3, sm_count = 132;
  const Target limited{.cluster = true, .max_clusters = [](int cluster, int64_t blocks) -> int64_t {
                         return cluster > widest ? 0 : sm_count * blocks / cluster;
                       }};
  const auto ways = pixel_layouts(centred(usual, false), limited);
  ASSERT_FALSE(ways.empty());
  for (const PixelLayout& l : ways) EXPECT_LE(l.cluster, widest);
}

TEST(pixel_layout, asked_for__is_that_one_or_the_best_guess) {
  const PixelForm form = centred(usual, false);
  const auto ways = pixel_layouts(form, target);
  ASSERT_GT(ways.size(), 2U);
  const auto same = [](const PixelLayout& a, const PixelLayout& b) {
    return a.tile == b.tile && a.cluster == b.cluster && a.threads == b.threads &&
           a.vector == b.vector && a.ctas_per_sm == b.ctas_per_sm && a.resident == b.resident;
  };
  for (const PixelLayout& l : ways) {
    const auto one = pixel_layout(form, target, l.tile, l.cluster, l.threads);
    ASSERT_TRUE(one.has_value());
    EXPECT_TRUE(same(*one, l));
  }
  const auto best = pixel_layout(form, target, 0, 0, 0),
             wide = pixel_layout(form, target, 48, 40, 384);
  ASSERT_TRUE(best && wide);
  EXPECT_TRUE(same(*best, ways[0]));
  EXPECT_TRUE(same(*wide, ways[0]));
  EXPECT_FALSE(pixel_layout(centred(large, false), target, 0, 0, 0).has_value());
}

TEST(pixel_layout, device_that_gives_no_answer__takes_clusters_that_all_chips_have) {
  const auto ways = pixel_layouts(centred(usual, false), target);
  ASSERT_FALSE(ways.empty());
  for (const PixelLayout& l : ways) EXPECT_LE(l.cluster, 8);
}

TEST(pixel_layout, one_tensor_in_pieces_of_many_multiprocessors__is_left_to_others) {
  const Target limited{.cluster = true, .max_clusters = [](int cluster, int64_t blocks) {
                         return Target().sm_count * blocks / cluster;
                       }};
  EXPECT_FALSE(pixel_layouts(centred(usual, false), limited).empty());
  EXPECT_TRUE(pixel_layouts(centred(large, false), limited).empty());
  EXPECT_FALSE(pixel_layouts(centred(large, true), limited).empty());
}

TEST(pixel_layout, whether_one_fits__asks_the_device_once_at_most) {
  int asked = 0;
  const Target limited{.cluster = true, .max_clusters = [&](int cluster, int64_t blocks) {
                         ++asked;
                         return Target().sm_count * blocks / cluster;
                       }};
  for (const Size size : {usual, large, Size{2, 4096, 64}, Size{1, 1 << 22, 64}})
    for (const bool two : {false, true}) {
      const bool any = !pixel_layouts(centred(size, two), limited).empty();
      EXPECT_GE(asked, any ? 5 : 0) << size.pixels;
      asked = 0;
      EXPECT_EQ(pixel_fits(centred(size, two), limited), any) << size.pixels;
      EXPECT_LE(asked, 1) << size.pixels;
    }
}

}  // namespace
}  // namespace ebb::codegen
