#include "pipeline/latent_encoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "pipeline/latent_decoder.h"

namespace ebb {
namespace {

// As the original clamps it.
constexpr float least_logvar = -30, most_logvar = 20;

// [N,h,w,..] of the outputs mean and, where there is one, logvar.
Tensor side_by_side(const NamedTensors& outputs) {
  const Tensor& mean = outputs.at("mean");
  if (!outputs.contains("logvar")) return mean.clone();
  const Shape& s = mean.shape();
  Tensor out(DType::f32, {s[0], s[1], s[2], 2 * s[3]});
  const float *a = mean.span<float>().data(), *b = outputs.at("logvar").span<float>().data();
  float* to = out.span<float>().data();
  for (int64_t i = 0; i < s.numel() / s[3]; ++i) {
    to = std::copy_n(a + i * s[3], s[3], to);
    to = std::copy_n(b + i * s[3], s[3], to);
  }
  return out;
}

Tensor channels_of(const Tensor& t, int64_t first, int64_t count) {
  const Shape& s = t.shape();
  Tensor out(DType::f32, {s[0], s[1], s[2], count});
  float* to = out.span<float>().data();
  for (int64_t i = 0; i < s.numel() / s[3]; ++i)
    to = std::copy_n(t.span<float>().data() + i * s[3] + first, count, to);
  return out;
}

}  // namespace

LatentEncoder::LatentEncoder(LoadedComponent autoencoder, const LatentScaling& scaling, DType dtype,
                             Context context, CircularAxes circular)
    : autoencoder_(std::move(autoencoder)),
      scaling_(read_by(autoencoder_.component, scaling)),
      dtype_(dtype),
      context_(std::move(context)),
      circular_(circular),
      plans_([this](const Shape& pixels) {
        EntryCall call{"encode", {{"pixels", pixels}}, {"mean"}};
        if (has_posterior()) call.outputs.emplace_back("logvar");
        return entry_plan(autoencoder_.component, call, dtype_, autoencoder_.weights, context_,
                          circular_);
      }) {}

// As the decoder's of as many latents.
Tiling LatentEncoder::tiling_of(int64_t side) const {
  const int64_t pixels = side * scaling_.space.factor;
  return {.tile = pixels,
          .overlap = pixels / 4,
          .margin = pixels / 16,
          .multiple = scaling_.space.factor};
}

std::vector<int64_t> LatentEncoder::sides(const Shape& pixels) const {
  const int64_t k = scaling_.space.factor;
  return LatentDecoder::sides({1, pixels[1] / k, pixels[2] / k, 1});
}

PlanNeeds LatentEncoder::needs(const Shape& pixels, int64_t tile) {
  const int64_t whole = sides(pixels)[0];
  const Tiling t = tiling_of(tile > 0 ? std::min(tile, whole) : whole);
  return plans_.of(tile_shape(pixels, t)).needs();
}

void LatentEncoder::set_largest(int64_t tile) {
  if (largest_ != tile) size_ = {};
  largest_ = tile;
}

void LatentEncoder::prepare(const Shape& pixels) {
  if (size_ == pixels) return;
  std::vector<int64_t> all = sides(pixels);
  if (circular_.any()) all.resize(1);
  tiling_ =
      plan_in_tiles(plans_, pixels, all, largest_, [&](int64_t side) { return tiling_of(side); });
  size_ = pixels;
}

EncodedImage LatentEncoder::encode(const Tensor& pixels) {
  const Component& c = autoencoder_.component;
  prepare(pixels.shape());
  Plan& plan = plans_.use(tile_shape(pixels.shape(), tiling_));
  const Tensor out = in_tiles(pixels, tiling_, [&](const Tensor& tile) {
    return side_by_side(plan.run({{"pixels", tile}}));
  });
  const int64_t channels = out.shape()[3] / (has_posterior() ? 2 : 1);
  EncodedImage image{channels_of(out, 0, channels), {}};
  for (const float v : image.mean.span<float>())
    require(std::isfinite(v), "encode: the latents of the image are not finite in ", dtype_,
            "; --dtype f32, or another --vae, may mend that  ", c.model->name);
  to_denoiser(image.mean, scaling_);
  if (!has_posterior()) return image;
  image.deviation = channels_of(out, channels, channels);
  for (float& v : image.deviation.span<float>())
    v = std::exp(0.5f * std::clamp(v, least_logvar, most_logvar));
  scale_deviation(image.deviation, scaling_);
  return image;
}

EncodedImage LatentEncoder::sketch(const Shape& pixels) {
  EncodedImage out;
  const Graph& g = plans_.of(pixels).graph();
  for (const NamedValue& o : g.outputs())
    (o.name == "mean" ? out.mean : out.deviation) = Tensor(g.type(o.value));
  return out;
}

void LatentEncoder::release() {
  plans_.release();
  autoencoder_.weights->drop_unused();
}

}  // namespace ebb
