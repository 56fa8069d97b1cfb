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
                             Context context, LatentStatistics statistics, CircularAxes tiling)
    : autoencoder_(std::move(autoencoder)),
      space_(space),
      statistics_(std::move(statistics)),
      dtype_(dtype),
      context_(std::move(context)),
      tiling_(tiling),
      plans_([this](const Shape& pixels) {
        EntryCall call{"encode", {{"pixels", pixels}}, {"mean"}};
        if (has_posterior()) call.outputs.emplace_back("logvar");
        return entry_plan(autoencoder_.component, call, dtype_, autoencoder_.weights, context_,
                          tiling_);
      }) {
  const Component& c = autoencoder_.component;
  const auto own = c.model->latents(c.config);
  if (own && own->scaled) space_.scale = 1, space_.shift = 0, statistics_ = {};
}

EncodedImage LatentEncoder::encode(const Tensor& pixels) {
  const Component& c = autoencoder_.component;
  Plan& plan = plans_.use(pixels.shape());
  plan.check_memory();
  const NamedTensors out = plan.run({{"pixels", pixels}});
  EncodedImage image{out.at("mean").clone(), {}};
  const auto mean = image.mean.span<float>();
  for (size_t i = 0; i < mean.size(); ++i) {
    float& v = mean[i];
    require(std::isfinite(v), "encode: the latents of the image are not finite in ", dtype_,
            "; --dtype f32, or another --vae, may mend that  ", c.model->name);
    v = static_cast<float>(statistics_.normalised(v - space_.shift, i) * space_.scale);
  }
  if (!has_posterior()) return image;
  image.deviation = out.at("logvar").clone();
  const auto deviation = image.deviation.span<float>();
  for (size_t i = 0; i < deviation.size(); ++i)
    deviation[i] =
        static_cast<float>(std::exp(0.5f * std::clamp(deviation[i], least_logvar, most_logvar)) *
                           space_.scale / statistics_.width(i));
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
