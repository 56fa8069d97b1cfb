// TextToImage: latents to pixels and back, by the autoencoder and upscalers.
#include <algorithm>

#include "base/error.h"
#include "core/out_of_memory.h"
#include "pipeline/text_to_image.h"

namespace ebb {
namespace {

// A picture f32 [H,W,3] of the last pass, as it is handed out.
Tensor finished(const ResolvedTextToImage& r, Tensor picture) {
  for (auto pass = r.passes.rbegin(); pass != r.passes.rend(); ++pass)
    for (auto mode = pass->modes.rbegin(); mode != pass->modes.rend(); ++mode)
      picture = (*mode)->finish(std::move(picture));
  return picture;
}

}  // namespace

TextToImage::Pixels& TextToImage::pixels_in(DType dtype) {
  if (pixels_.dtype != dtype || pixels_.tiling != tiling_)
    pixels_ = {dtype, tiling_, nullptr, nullptr};
  return pixels_;
}

// An upscaler's plans are for one way in which pictures go on.
void TextToImage::take_tiling(CircularAxes tiling) {
  tiling_ = tiling;
  const auto take = [&](std::unique_ptr<Upscaler>& u, const std::optional<LoadedComponent>& of) {
    if (of && (!u || u->options().circular != tiling))
      u = std::make_unique<Upscaler>(*of, context_, UpscaleOptions{.circular = tiling});
  };
  take(upscaler_, parts_.upscaler);
  take(hires_upscaler_, parts_.hires_upscaler);
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

Tensor TextToImage::decoded(const Tensor& latents, DType dtype,
                            const std::function<void(double)>& progress) {
  LatentDecoder& d = decoder(dtype);
  d.set_largest(policy_.decoder_tile);
  Tensor pixels = d.decode(latents, progress);
  if (policy_.one_by_one) d.release();
  return pixels;
}

// Of one picture's latents, as it is handed out. They are worth more than what lies on the device:
// where memory runs out, that goes, and from then on one component is there at a time.
Tensor TextToImage::pixels_of(const ResolvedTextToImage& r, const Tensor& latents,
                              const std::function<bool(double)>& progress) {
  const double half = upscaler_ ? 0.5 : 1;  // of the work, as far as it matters
  const auto made = [&] {
    const Tensor pixels = decoded(latents, pipeline_.dtype_of(r.first()),
                                  [&](double share) { progress(half * share); });
    const Tensor out = finished(r, image_at(pixels, 0));
    if (!upscaler_) return out;
    return enlarged(out, r.request.upscale,
                    [&](double share) { return progress(half + half * share); });
  };
  try {
    return made();
  } catch (const OutOfMemory&) {
    release();
  }
  if (tell_ && !policy_.one_by_one)
    tell_("warning: out of memory while decoding: goes on with one component at a time");
  policy_.encoders_leave = policy_.one_by_one = true;
  return made();
}

ImageSize picture_size(const CheckpointParts& parts, const ResolvedTextToImage& r) {
  const int64_t factor = parts.denoiser.model->latents(parts.denoiser.config)->factor;
  const Shape& latents = r.passes.back().request.sample;
  Shape size{1, latents[0] * factor, latents[1] * factor, 3};
  const bool changes =
      std::ranges::any_of(r.passes, [](const RunPass& p) { return !p.modes.empty(); });
  if (changes) {
    const Tensor last = finished(r, Tensor(DType::f32, {size[1], size[2], 3}));
    size = {1, last.shape()[0], last.shape()[1], 3};
  }
  if (parts.upscaler)
    size = Upscaler::scaled(
        size, r.request.upscale > 0
                  ? r.request.upscale
                  : static_cast<double>(scale_of_upscaler(parts.upscaler->component)));
  return {.height = size[1], .width = size[2]};
}

RunTools TextToImage::tools(DType dtype, const PassWork& work,
                            const std::function<void(double)>& tells) {
  const auto done = std::make_shared<double>(0);
  // Calls `tells` as a tool goes on, which is so much work.
  const auto watched = [tells, done](double of, const auto& use) {
    auto out = use([&](double share) { tells(*done + of * share); });
    *done += of;
    return out;
  };
  return {.encode =
              [=, this](const Tensor& pixels) {
                return watched(work.encoding, [&](const auto& progress) {
                  EncodedImage image = encoder(dtype).encode(pixels, progress);
                  if (policy_.one_by_one) encoder(dtype).release();
                  return image;
                });
              },
          .decode =
              [=, this](const Tensor& latents) {
                return watched(work.decoding, [&](const auto& progress) {
                  return decoded(latents, dtype, progress);
                });
              },
          .upscale =
              [=, this](const Tensor& pixels, double scale) {
                return watched(work.enlarging, [&](const auto& progress) {
                  hires_upscaler_->set_largest(policy_.upscaler_tile);
                  Tensor out = hires_upscaler_->run(pixels, scale, [&](double share) {
                    progress(share);
                    return true;
                  });
                  hires_upscaler_->release();
                  return out;
                });
              }};
}

Preview TextToImage::preview(const ResolvedTextToImage& r,
                             const std::optional<LoadedComponent>& small) {
  const DType dtype = pipeline_.dtype_of(r.first());
  const LatentSpace space = *parts_.denoiser.model->latents(parts_.denoiser.config);
  if (small) {
    const auto decoder = std::make_shared<LatentDecoder>(*small, space, dtype, context_);
    preview_decoder_ = decoder;
    return [this, decoder](const Tensor& latents) {
      decoder->set_largest(policy_.decoder_tile);
      Tensor pixels = decoder->decode(latents);
      if (policy_.one_by_one) decoder->release();
      return pixels;
    };
  }
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
  upscaler_->set_largest(policy_.upscaler_tile);
  const Tensor out =
      upscaler_->run(pixels.reshape({1, s[0], s[1], s[2]}),
                     scale > 0 ? scale : static_cast<double>(upscaler_->scale()), progress);
  if (policy_.one_by_one) upscaler_->release();
  return image_at(out, 0);
}

}  // namespace ebb
