#include "pipeline/latent_encoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "pipeline/latent_decoder.h"

namespace ebb {
namespace {

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
      plans_(
          [this](const Shape& pixels) {
            EntryCall call{"encode", {{"pixels", pixels}}, {"mean"}};
            if (has_posterior()) call.outputs.emplace_back("logvar");
            return entry_plan(autoencoder_.component, call, dtype_, autoencoder_.weights, context_,
                              circular_);
          },
          [this](const Shape& pixels) { return tilings(pixels); }) {}

// As the decoder's of as many latents.
std::vector<Tiling> LatentEncoder::tilings(const Shape& pixels) const {
  const int64_t k = scaling_.space.factor;
  std::vector<Tiling> out;
  for (const int64_t side : LatentDecoder::sides({1, pixels[1] / k, pixels[2] / k, 1}))
    out.push_back({.tile = side * k,
                   .overlap = side * k / 4,
                   .margin = side * k / 16,
                   .multiple = k,
                   .circular = circular_});
  return out;
}

PlanNeeds LatentEncoder::needs(const Shape& pixels, int64_t tile) {
  return plans_.needs(pixels, tile * scaling_.space.factor);
}

EncodedImage LatentEncoder::encode(const Tensor& pixels,
                                   const std::function<void(double)>& progress) {
  const Component& c = autoencoder_.component;
  if (progress) progress(0);  // before a plan is compiled
  const auto [plan, tiling, chosen] = plans_.use(pixels.shape());
  const auto tiles = static_cast<double>(tile_count(pixels.shape(), tiling));
  double done = 0;
  const Watched watched(plan, [&](double share) {
    if (progress) progress((done + share) / tiles);
  });
  const Tensor out = in_tiles(pixels, tiling, [&, &plan = plan](const Tensor& tile) {
    Tensor made = side_by_side(plan.run({{"pixels", tile}}));
    if (progress) progress(++done / tiles);
    return made;
  });
  const int64_t channels = out.shape()[3] / (has_posterior() ? 2 : 1);
  EncodedImage image{channels_of(out, 0, channels), {}};
  for (const float v : image.mean.span<float>())
    require(std::isfinite(v), "encode: the latents of the image are not finite in ", dtype_,
            "; --dtype f32, or another --vae, may mend that  ", c.model->name);
  to_denoiser(image.mean, scaling_);
  if (!has_posterior()) return image;
  image.deviation = channels_of(out, channels, channels);
  for (float& v : image.deviation.span<float>()) v = std::exp(0.5f * v);
  scale_deviation(image.deviation, scaling_);
  return image;
}

EncodedImage LatentEncoder::sketch(const Shape& pixels) {
  EncodedImage out;
  const Graph& g = plans_.whole(pixels).graph();
  for (const NamedValue& o : g.outputs())
    (o.name == "mean" ? out.mean : out.deviation) = Tensor(g.type(o.value));
  return out;
}

void LatentEncoder::release() {
  plans_.release();
  autoencoder_.weights->drop_unused(*context_.device);
}

}  // namespace ebb
