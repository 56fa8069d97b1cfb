// Tiles with blended seams.
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "pipeline/component.h"
#include "pipeline/latent_decoder.h"
#include "pipeline/tiles.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/hashed_weights.h"

using namespace ebb;

namespace {

float largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  float worst = 0;
  for (size_t i = 0; i < a.span<float>().size(); ++i)
    worst = std::max(worst, std::abs(a.span<float>()[i] - b.span<float>()[i]));
  return worst;
}

// Twice the size, of a network of convolutions without norms.
struct SmallDecoder {
  NamedModel m = find_component("taesd");
  std::shared_ptr<WeightStore> store;
  Context context = test::open_backend("cpu").context;

  SmallDecoder() {
    for (const auto& [field, text] :
         {std::pair("levels", "1"), {"blocks", "1"}, {"width", "8"}, {"encoder", "false"}})
      set_field(find_field(m.config.fields(), field, "taesd"), text);
    WeightStore::Weights weights;
    for (const nn::Weight& w : weights_of(*m.model, m.config))
      weights.emplace(w.name, stored_tensor(nn::hashed_weight(w)));
    store = std::make_shared<WeightStore>(std::move(weights));
  }
  Tensor operator()(const Tensor& latents) const {
    const EntryCall call{"decode", {{"latents", latents.shape()}}, {"pixels"}};
    Plan plan = entry_plan({m.model, m.config, ""}, call, DType::f32, store, context);
    return plan.run({{"latents", latents}}).at("pixels").clone();
  }
};

}  // namespace

// A result depends on latents that are up to seven away: convolutions of radius 1, four before the
// size doubles and five behind.
TEST(in_tiles, margins_as_wide_as_what_a_result_depends_on__give_the_image_without_tiles) {
  const SmallDecoder decode;
  const Tensor latents = nn::hashed_input("latents", {1, 37, 50, 4});
  const Tensor whole = decode(latents);
  const auto error = [&](const Tiling& t) {
    return largest_difference(in_tiles(latents, t, decode), whole);
  };
  const float close = error({.tile = 28, .overlap = 20, .margin = 7});
  const float seams = error({.tile = 28, .overlap = 8, .margin = 1});
  EXPECT_LE(close, 1e-5);
  EXPECT_GE(seams, 100 * close);  // what is cut off is missed
  RecordProperty("errors", str(close, " ", seams));
}

TEST(latent_decoder, image_that_memory_is_too_short_for__is_decoded_in_tiles_that_fit) {
  const SmallDecoder decode;
  const Component taesd{decode.m.model, decode.m.config, ""};
  const Tensor latents = nn::hashed_input("latents", {2, 150, 140, 4});
  const auto bytes = [&](int64_t side) {
    const EntryCall call{"decode", {{"latents", {1, side, side, 4}}}, {"pixels"}};
    return entry_plan(taesd, call, DType::f32, decode.store,
                      {.device = std::make_shared<ebb::testing::FarDevice>()})
        .missing_bytes();
  };
  const auto decoded = [&](int64_t memory, std::vector<int64_t>& tiles) {
    return latent_decoder({taesd, decode.store}, {.factor = 2}, DType::f32,
                          {.device = std::make_shared<ebb::testing::FarDevice>(memory)},
                          [&](const Tiling& t) { tiles.push_back(t.tile); })
        .decode(latents);
  };
  std::vector<int64_t> none, some;
  const Tensor whole = decoded(int64_t{1} << 40, none), tiled = decoded(bytes(64), some);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(some, std::vector<int64_t>{64});
  // margins of 4, where results depend on 7
  EXPECT_LE(largest_difference(tiled, whole), 0.05);
  EXPECT_GT(largest_difference(tiled, whole), 0);
  EXPECT_THROW(decoded(bytes(32) - 1, some), OutOfMemory);
}

TEST(in_tiles, weights_of_a_result__sum_to_one) {
  Tensor image(DType::f32, {2, 33, 100, 3});
  for (float& v : image.span<float>()) v = 0.75f;
  int tiles = 0;
  const Tensor out = in_tiles(image, {.tile = 24, .overlap = 8, .margin = 2}, [&](const Tensor& t) {
    EXPECT_EQ(t.shape(), Shape({2, 24, 24, 3}));
    ++tiles;
    return t;
  });
  EXPECT_EQ(tiles, 2 * 6);
  EXPECT_LE(largest_difference(out, image), 1e-6);
}

TEST(in_tiles, image_of_one_tile__is_evaluated_once_as_it_is) {
  const Tensor image = nn::hashed_input("image", {1, 20, 24, 3});
  const Tensor out = in_tiles(image, {.tile = 24, .overlap = 8, .margin = 2}, [&](const Tensor& t) {
    EXPECT_EQ(t.raw(), image.raw());
    return t;
  });
  EXPECT_EQ(out.raw(), image.raw());
}

TEST(in_tiles, tiles_that_do_not_overlap_enough__are_an_error) {
  EXPECT_EQ(ebb::testing::error_of([] {
              tile_shape({1, 64, 64, 4}, {.tile = 32, .overlap = 8, .margin = 4});
            }),
            "tiles: two margins (4) must be less than the overlap (8), and that less than a tile "
            "(32)");
}
