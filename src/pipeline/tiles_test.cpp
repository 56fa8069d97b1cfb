// Tiles with blended seams.
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "pipeline/component.h"
#include "pipeline/latent_decoder.h"
#include "pipeline/latent_encoder.h"
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
    return latent_decoder({taesd, decode.store}, LatentSpace{.factor = 2}, DType::f32,
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

// Means of 4x4 pixels, and of what is up to 8 pixels around them: an encoder.
TEST(in_tiles, results_that_are_smaller__fade_into_each_other_as_well) {
  constexpr int64_t k = 4, around = 8;
  const auto encode = [&](const Tensor& x) {
    const int64_t h = x.shape()[1], w = x.shape()[2];
    Tensor out(DType::f32, {1, h / k, w / k, 1});
    for (int64_t i = 0; i < h / k; ++i)
      for (int64_t j = 0; j < w / k; ++j) {
        double sum = 0;
        for (int64_t y = i * k - around; y < i * k + k + around; ++y)
          for (int64_t c = j * k - around; c < j * k + k + around; ++c)
            if (y >= 0 && y < h && c >= 0 && c < w)
              sum += double{x.span<float>()[static_cast<size_t>(y * w + c)]};
        out.span<float>()[static_cast<size_t>(i * (w / k) + j)] = static_cast<float>(sum / 400);
      }
    return out;
  };
  const Tensor image = nn::hashed_input("image", {1, 100, 68, 1}), whole = encode(image);
  const auto error = [&](const Tiling& t) {
    return largest_difference(in_tiles(image, t, encode), whole);
  };
  EXPECT_LE(error({.tile = 48, .overlap = 24, .margin = 8, .multiple = k}), 1e-6);
  EXPECT_GE(error({.tile = 48, .overlap = 16, .margin = 0, .multiple = k}), 1e-3);
  EXPECT_EQ(ebb::testing::error_of(
                [&] { error({.tile = 48, .overlap = 24, .margin = 6, .multiple = k}); }),
            "tiles: margins (6) and overlaps (24) must be multiples of what results are smaller by "
            "(4)");
}

TEST(latent_encoder, image_that_memory_is_too_short_for__is_encoded_in_tiles_that_fit) {
  NamedModel m = find_component("autoencoder_kl");
  for (const auto& [field, text] : {std::pair("channels", "8"),
                                    {"channel_mult", "[1,1]"},
                                    {"res_blocks", "1"},
                                    {"groups", "4"}})
    set_field(find_field(m.config.fields(), field, "autoencoder_kl"), text);
  WeightStore::Weights weights;
  for (const nn::Weight& w : weights_of(*m.model, m.config))
    weights.emplace(w.name, stored_tensor(nn::hashed_weight(w)));
  const LoadedComponent network{{m.model, m.config, ""},
                                std::make_shared<WeightStore>(std::move(weights))};
  const Tensor pixels = nn::hashed_input("pixels", {1, 140, 132, 3});
  const auto encoder = [&](int64_t memory) {
    return std::make_unique<LatentEncoder>(
        network, LatentSpace{.factor = 2}, DType::f32,
        Context{.device = std::make_shared<ebb::testing::FarDevice>(memory)});
  };
  const auto whole = encoder(int64_t{1} << 40), tiles = encoder(int64_t{1} << 40);
  tiles->set_largest(48);
  const EncodedImage a = whole->encode(pixels), b = tiles->encode(pixels);
  for (const auto& [x, y] : {std::pair{a.mean, b.mean}, {a.deviation, b.deviation}}) {
    // norms and attention see the whole of their tile
    double sum = 0;
    for (size_t i = 0; i < x.span<float>().size(); ++i)
      sum += std::abs(double{x.span<float>()[i]} - double{y.span<float>()[i]});
    EXPECT_LE(sum / static_cast<double>(x.numel()), 0.1);
    EXPECT_GT(largest_difference(x, y), 0);
  }
  const auto bytes = [&](int64_t side) {
    const auto far = encoder(int64_t{1} << 40);
    return far->needs(pixels.shape(), side).bytes();
  };
  EXPECT_LT(bytes(32), bytes(0));
}

namespace {

// Moved by so many rows and columns, those that leave at one side coming in at the other.
Tensor rolled(const Tensor& image, int64_t rows, int64_t columns) {
  const Shape& s = image.shape();
  Tensor out(DType::f32, s);
  for (int64_t y = 0; y < s[1]; ++y)
    for (int64_t x = 0; x < s[2]; ++x)
      std::copy_n(
          image.span<float>().data() + (y * s[2] + x) * s[3], s[3],
          out.span<float>().data() + ((y + rows) % s[1] * s[2] + (x + columns) % s[2]) * s[3]);
  return out;
}

}  // namespace

// Of pictures that can be laid side by side, what lies at the sides is decoded as well as the rest.
TEST(latent_decoder, tiles_of_a_circular_image__wrap_around_it) {
  const SmallDecoder decode;
  const Component taesd{decode.m.model, decode.m.config, ""};
  const Tensor latents = nn::hashed_input("latents", {1, 150, 40, 4});
  // where tiles of other images fade into each other
  const auto seams = [&] {
    LatentDecoder plain({taesd, decode.store}, LatentSpace{.factor = 2}, DType::f32,
                        decode.context);
    const Tensor whole = plain.decode(latents);
    plain.set_largest(32);
    return largest_difference(plain.decode(latents), whole);
  }();
  for (const CircularAxes axes : {CircularAxes{true, true}, {true, false}, {false, true}}) {
    LatentDecoder decoder({taesd, decode.store}, LatentSpace{.factor = 2}, DType::f32,
                          decode.context, {}, axes);
    const Tensor whole = decoder.decode(latents);
    const auto moved = [&] {
      const int64_t rows = axes.y ? 50 : 0, columns = axes.x ? 17 : 0;
      const Tensor there = decoder.decode(rolled(latents, rows, columns));
      return rolled(there, 2 * (150 - rows), 2 * (40 - columns));
    };
    EXPECT_LE(largest_difference(moved(), whole), 1e-5);
    decoder.set_largest(32);
    const Tensor tiled = decoder.decode(latents);
    EXPECT_GT(largest_difference(tiled, whole), 0);
    // behind the ends of a tile there is its own other side, not zeros
    EXPECT_LE(largest_difference(tiled, whole), 2 * seams) << axes.x << axes.y;
    EXPECT_LE(largest_difference(moved(), whole), 2 * seams) << axes.x << axes.y;
  }
}

TEST(in_tiles, circular_image_with_wide_margins__is_that_without_tiles) {
  const auto blurred = [](const Tensor& t, bool wraps) {
    const Shape& s = t.shape();
    Tensor out(DType::f32, s);
    for (int64_t y = 0; y < s[1]; ++y)
      for (int64_t x = 0; x < s[2]; ++x) {
        double sum = 0;
        for (int64_t j = -3; j <= 3; ++j)
          for (int64_t i = -3; i <= 3; ++i) {
            const int64_t v = y + j, u = x + i;
            const bool inside = v >= 0 && v < s[1] && u >= 0 && u < s[2];
            if (inside || wraps)
              sum += double{t.span<float>()[static_cast<size_t>((v + s[1]) % s[1] * s[2] +
                                                                (u + s[2]) % s[2])]};
          }
        out.span<float>()[static_cast<size_t>(y * s[2] + x)] = static_cast<float>(sum);
      }
    return out;
  };
  const Tensor image = nn::hashed_input("image", {1, 61, 47, 1});
  const auto error = [&](CircularAxes axes) {
    const Tensor out = in_tiles(image, {.tile = 24, .overlap = 9, .margin = 3, .circular = axes},
                                [&](const Tensor& t) { return blurred(t, false); });
    return largest_difference(out, blurred(image, true));
  };
  EXPECT_LE(error({.x = true, .y = true}), 1e-5);
  EXPECT_GE(error({.x = true}), 0.1);
  EXPECT_GE(error({}), 0.1);
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
