#include "pipeline/latent_decoder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <vector>

#include "base/error.h"

namespace ebb {
namespace {

// Sides of tiles, in latents, that are tried in this order. Smaller ones would show in the colours.
constexpr int64_t tile_sides[] = {128, 96, 64, 48, 32};

// Neighbours share a quarter. Its middle half is blended.
Tiling tiling_of(int64_t side) { return {.tile = side, .overlap = side / 4, .margin = side / 16}; }

}  // namespace

LatentDecoder::LatentDecoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                             Context context, Tells tells, CircularAxes circular)
    : autoencoder_(std::move(autoencoder)),
      scaling_(read_by(autoencoder_.component, scaling)),
      context_(std::move(context)),
      dtype_(dtype),
      tells_(std::move(tells)),
      circular_(circular),
      plans_([this](const Shape& tile) {
        const EntryCall call{"decode", {{"latents", tile}}, {"pixels"}};
        return entry_plan(autoencoder_.component, call, dtype_, autoencoder_.weights, context_,
                          circular_);
      }) {}

Tensor LatentDecoder::decode(const Tensor& samples) {
  const Shape& s = samples.shape();
  const Shape one = {1, s[1], s[2], s[3]};
  prepare(one);
  Plan& plan = plans_.use(tile_shape(one, tiling_));
  Tensor out(DType::f32, {s[0], s[1] * scaling_.space.factor, s[2] * scaling_.space.factor, 3});
  for (int64_t i = 0; i < s[0]; ++i) {
    Tensor latents = samples.rows(i, i + 1).clone();
    to_autoencoder(latents, scaling_);
    const Tensor pixels = in_tiles(latents, tiling_, [&](const Tensor& tile) {
      return plan.run({{"latents", tile}}).at("pixels");
    });
    const auto from = pixels.span<float>();
    require(std::ranges::all_of(from, [](float v) { return std::isfinite(v); }),
            "decode: the pixels of image ", i, " are not finite in ", dtype_,
            "; --dtype f32, or another --vae, may mend that  ", autoencoder_.component.model->name);
    std::ranges::transform(from, out.rows(i, i + 1).span<float>().begin(),
                           [](float v) { return std::clamp(v, -1.f, 1.f); });
  }
  return out;
}

std::vector<int64_t> LatentDecoder::sides(const Shape& image) {
  const int64_t longer = std::max(image[1], image[2]);
  std::vector<int64_t> out = {std::max(longer, tile_sides[0])};
  std::ranges::copy_if(tile_sides, std::back_inserter(out),
                       [&](int64_t side) { return side < longer; });
  return out;
}

PlanNeeds LatentDecoder::needs(const Shape& image, int64_t side) {
  return plans_.of(tile_shape(image, tiling_of(side))).needs();
}

void LatentDecoder::set_largest(int64_t side) {
  if (largest_ != side) size_ = {};
  largest_ = side;
}

void LatentDecoder::release() {
  plans_.release();
  autoencoder_.weights->drop_unused();
}

// Plans of whole images, or else of tiles. Along axes that are circular the edges of tiles are not
// those of the image, so there are none.
void LatentDecoder::prepare(const Shape& image) {
  if (size_ == image) return;
  std::vector<int64_t> all = sides(image);
  if (circular_.any()) all.resize(1);
  tiling_ = plan_in_tiles(plans_, image, all, largest_, tiling_of);
  size_ = image;
  if (tiling_.tile < std::max(image[1], image[2]) && tells_) tells_(tiling_);
}

Decoder latent_decoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                       Context context, LatentDecoder::Tells tells, CircularAxes circular) {
  const std::string name = autoencoder.component.model->name;
  const auto decoder = std::make_shared<LatentDecoder>(
      std::move(autoencoder), scaling, dtype, std::move(context), std::move(tells), circular);
  return {name, [decoder](const Tensor& samples) { return decoder->decode(samples); }};
}

}  // namespace ebb
