#include "pipeline/latent_decoder.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "core/out_of_memory.h"

namespace ebb {
namespace {

// Sides of tiles, in latents, that are tried in this order. Smaller ones would show in the colours.
constexpr int64_t tile_sides[] = {128, 96, 64, 48, 32};

// Neighbours share a quarter. Its middle half is blended.
Tiling tiling_of(int64_t side) { return {.tile = side, .overlap = side / 4, .margin = side / 16}; }

// Keeps the plan of the size that it decoded last.
class LatentDecoder {
 public:
  LatentDecoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype, Context context,
                std::function<void(const Tiling&)> tells, CircularAxes circular)
      : autoencoder_(std::move(autoencoder)),
        space_(space),
        dtype_(dtype),
        context_(std::move(context)),
        tells_(std::move(tells)),
        circular_(circular) {
    const Component& c = autoencoder_.component;
    const auto own = c.model->latents(c.config);
    if (own && own->scaled) space_.scale = 1, space_.shift = 0;
  }

  Tensor decode(const Tensor& samples) {
    const Shape& s = samples.shape();
    prepare({1, s[1], s[2], s[3]});
    Tensor out(DType::f32, {s[0], s[1] * space_.factor, s[2] * space_.factor, 3});
    for (int64_t i = 0; i < s[0]; ++i) {
      const Tensor latents = samples.rows(i, i + 1).clone();
      for (float& v : latents.span<float>())
        v = static_cast<float>(v / space_.scale + space_.shift);
      const Tensor pixels = in_tiles(latents, tiling_, [&](const Tensor& tile) {
        return plan_->run({{"latents", tile}}).at("pixels");
      });
      const auto from = pixels.span<float>();
      require(std::ranges::all_of(from, [](float v) { return std::isfinite(v); }),
              "decode: the pixels of image ", i, " are not finite in ", dtype_,
              "; --dtype f32, or another --vae, may mend that  ",
              autoencoder_.component.model->name);
      std::ranges::transform(from, out.rows(i, i + 1).span<float>().begin(),
                             [](float v) { return std::clamp(v, -1.f, 1.f); });
    }
    return out;
  }

 private:
  // A plan of whole images, or else of tiles.
  void prepare(const Shape& image) {
    if (plan_ && size_ == image) return;
    const int64_t longer = std::max(image[1], image[2]);
    std::vector<int64_t> sides = {std::max(longer, tile_sides[0])};
    std::ranges::copy_if(tile_sides, std::back_inserter(sides),
                         [&](int64_t side) { return side < longer; });
    for (const int64_t side : sides) {
      try {
        tiling_ = tiling_of(side);
        compile(tile_shape(image, tiling_));
        size_ = image;
        if (side < longer && tells_) tells_(tiling_);
        return;
      } catch (const OutOfMemory&) {
        plan_.reset();
        // the edges of tiles are not those of the image
        if (side == sides.back() || circular_.any()) throw;
      }
    }
  }

  void compile(const Shape& tile) {
    const EntryCall call{"decode", {{"latents", tile}}, {"pixels"}};
    plan_.emplace(entry_plan(autoencoder_.component, call, dtype_, autoencoder_.weights, context_,
                             circular_));
    plan_->check_memory();
  }

  LoadedComponent autoencoder_;
  LatentSpace space_;
  DType dtype_;
  Context context_;
  std::function<void(const Tiling&)> tells_;
  CircularAxes circular_;
  std::optional<Plan> plan_;
  Tiling tiling_;
  Shape size_;  // of the image that these are for
};

}  // namespace

Decoder latent_decoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype,
                       Context context, std::function<void(const Tiling&)> tells,
                       CircularAxes circular) {
  const std::string name = autoencoder.component.model->name;
  const auto decoder = std::make_shared<LatentDecoder>(
      std::move(autoencoder), space, dtype, std::move(context), std::move(tells), circular);
  return {name, [decoder](const Tensor& samples) { return decoder->decode(samples); }};
}

}  // namespace ebb
