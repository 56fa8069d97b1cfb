// TextToImage: latents to pixels and back, by the autoencoder and upscalers.
#include "base/error.h"
#include "pipeline/text_to_image.h"

namespace ebb {

TextToImage::Pixels& TextToImage::pixels_in(DType dtype) {
  if (pixels_.dtype != dtype || pixels_.tiling != tiling_)
    pixels_ = {dtype, tiling_, nullptr, nullptr};
  return pixels_;
}

LatentDecoder& TextToImage::decoder(DType dtype) {
  Pixels& p = pixels_in(dtype);
  if (p.decoder) return *p.decoder;
  const LatentScaling scaling = latent_scaling(*parts_.denoiser.model, parts_.denoiser.config);
  const auto tells = [this, factor = scaling.space.factor](const Tiling& t) {
    const int64_t side = t.tile * factor;
    if (tell_)
      tell_(str("generate: memory is short: decodes tiles of ", side, "x", side, " pixels"));
  };
  p.decoder = std::make_unique<LatentDecoder>(*parts_.autoencoder, scaling, dtype, context_, tells,
                                              p.tiling);
  return *p.decoder;
}

LatentEncoder& TextToImage::encoder(DType dtype) {
  Pixels& p = pixels_in(dtype);
  if (!p.encoder)
    p.encoder = std::make_unique<LatentEncoder>(
        *parts_.autoencoder, latent_scaling(*parts_.denoiser.model, parts_.denoiser.config), dtype,
        context_, p.tiling);
  p.encoder->set_largest(policy_.decoder_tile);
  return *p.encoder;
}

Tensor TextToImage::decoded(const Tensor& latents, DType dtype) {
  LatentDecoder& d = decoder(dtype);
  d.set_largest(policy_.decoder_tile);
  Tensor pixels = d.decode(latents);
  if (policy_.one_by_one) d.release();
  return pixels;
}

RunTools TextToImage::tools(DType dtype) {
  const auto encode = [this, dtype](const Tensor& pixels) {
    EncodedImage image = encoder(dtype).encode(pixels);
    if (policy_.one_by_one) encoder(dtype).release();
    return image;
  };
  return {.encode = encode,
          .decode = [this, dtype](const Tensor& latents) { return decoded(latents, dtype); },
          .upscale =
              [this](const Tensor& pixels, double scale) {
                if (!hires_upscaler_)
                  hires_upscaler_ =
                      std::make_unique<Upscaler>(parts_.hires_upscaler.value(), context_);
                Tensor out = hires_upscaler_->run(pixels, scale);
                hires_upscaler_->release();
                return out;
              }};
}

Preview TextToImage::preview(const ResolvedTextToImage& r,
                             const std::optional<LoadedComponent>& small) {
  const DType dtype = pipeline_.dtype_of(r.first());
  const LatentSpace space = *parts_.denoiser.model->latents(parts_.denoiser.config);
  if (small) return decoder_preview(latent_decoder(*small, space, dtype, context_));
  require(parts_.autoencoder.has_value(),
          "generate: --preview needs an autoencoder, which the checkpoint lacks; --preview-decoder "
          "FILE names one");
  // before the run, which then has the memory to itself
  LatentDecoder& autoencoder = decoder(dtype);
  Preview out = linear_preview(
      {.name = "", .decode = [&](const Tensor& latents) { return autoencoder.decode(latents); }},
      r.first().sample[2]);
  autoencoder.release();
  return out;
}

Tensor TextToImage::enlarged(const Tensor& pixels, double scale,
                             const std::function<bool(double)>& progress) {
  const Shape& s = pixels.shape();
  upscaler_->set_tile(policy_.upscaler_tile);
  const Tensor out =
      upscaler_->run(pixels.reshape({1, s[0], s[1], s[2]}),
                     scale > 0 ? scale : static_cast<double>(upscaler_->scale()), progress);
  if (policy_.one_by_one) upscaler_->release();
  return image_at(out, 0);
}

}  // namespace ebb
