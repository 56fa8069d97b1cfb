#include "pipeline/latent_encoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ebb {
namespace {

// As the original clamps it.
constexpr float least_logvar = -30, most_logvar = 20;

}  // namespace

LatentEncoder::LatentEncoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype,
                             Context context, CircularAxes tiling)
    : autoencoder_(std::move(autoencoder)),
      space_(space),
      dtype_(dtype),
      context_(std::move(context)),
      tiling_(tiling) {
  const Component& c = autoencoder_.component;
  const auto own = c.model->latents(c.config);
  if (own && own->scaled) space_.scale = 1, space_.shift = 0;
}

EncodedImage LatentEncoder::encode(const Tensor& pixels) {
  const Component& c = autoencoder_.component;
  const bool posterior = c.model->name == "autoencoder_kl";
  if (!plan_ || size_ != pixels.shape()) {
    EntryCall call{"encode", {{"pixels", pixels.shape()}}, {"mean"}};
    if (posterior) call.outputs.emplace_back("logvar");
    plan_.reset();
    plan_.emplace(entry_plan(c, call, dtype_, autoencoder_.weights, context_, tiling_));
    plan_->check_memory();
    size_ = pixels.shape();
  }
  const NamedTensors out = plan_->run({{"pixels", pixels}});
  EncodedImage image{out.at("mean").clone(), {}};
  for (float& v : image.mean.span<float>()) {
    require(std::isfinite(v), "encode: the latents of the image are not finite in ", dtype_,
            "; --dtype f32, or another --vae, may mend that  ", c.model->name);
    v = static_cast<float>((v - space_.shift) * space_.scale);
  }
  if (!posterior) return image;
  image.deviation = out.at("logvar").clone();
  for (float& v : image.deviation.span<float>())
    v = static_cast<float>(std::exp(0.5f * std::clamp(v, least_logvar, most_logvar)) *
                           space_.scale);
  return image;
}

}  // namespace ebb
