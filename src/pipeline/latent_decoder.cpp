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
std::vector<Tiling> tilings(const Shape& image, CircularAxes circular) {
  std::vector<Tiling> out;
  for (const int64_t side : LatentDecoder::sides(image))
    out.push_back({.tile = side, .overlap = side / 4, .margin = side / 16, .circular = circular});
  return out;
}

}  // namespace

LatentDecoder::LatentDecoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                             Context context, Tells tells, CircularAxes circular)
    : autoencoder_(std::move(autoencoder)),
      scaling_(read_by(autoencoder_.component, scaling)),
      context_(std::move(context)),
      dtype_(dtype),
      tells_(std::move(tells)),
      plans_(
          [this, circular](const Shape& tile) {
            const EntryCall call{"decode", {{"latents", tile}}, {"pixels"}};
            return entry_plan(autoencoder_.component, call, dtype_, autoencoder_.weights, context_,
                              circular);
          },
          [circular](const Shape& image) { return tilings(image, circular); }) {}

Tensor LatentDecoder::decode(const Tensor& samples, const std::function<void(double)>& progress) {
  const Shape& s = samples.shape();
  const Shape one = {1, s[1], s[2], s[3]};
  if (progress) progress(0);  // before a plan is compiled
  const auto [plan, tiling, chosen] = plans_.use(one);
  if (chosen && tells_ && tile_count(one, tiling) > 1) tells_(tiling);
  const auto tiles = static_cast<double>(s[0] * tile_count(one, tiling));
  double done = 0;
  const Watched watched(plan, [&](double share) {
    if (progress) progress((done + share) / tiles);
  });
  Tensor out(DType::f32, {s[0], s[1] * scaling_.space.factor, s[2] * scaling_.space.factor, 3});
  for (int64_t i = 0; i < s[0]; ++i) {
    Tensor latents = samples.rows(i, i + 1).clone();
    to_autoencoder(latents, scaling_);
    const Tensor pixels = in_tiles(latents, tiling, [&, &plan = plan](const Tensor& tile) {
      Tensor made = plan.run({{"latents", tile}}).at("pixels");
      if (progress) progress(++done / tiles);
      return made;
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
  return plans_.needs(image, side);
}

void LatentDecoder::release() {
  plans_.release();
  autoencoder_.weights->drop_unused(*context_.device);
}

Decoder latent_decoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                       Context context, LatentDecoder::Tells tells, CircularAxes circular) {
  const std::string name = autoencoder.component.model->name;
  const auto decoder = std::make_shared<LatentDecoder>(
      std::move(autoencoder), scaling, dtype, std::move(context), std::move(tells), circular);
  return {name, [decoder](const Tensor& samples) { return decoder->decode(samples); }};
}

}  // namespace ebb
