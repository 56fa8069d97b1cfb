#include "pipeline/latent_decoder.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"

namespace ebb {
namespace {

// Keeps the plan of the size that it decoded last.
class LatentDecoder {
 public:
  LatentDecoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype, Context context)
      : autoencoder_(std::move(autoencoder)),
        space_(space),
        dtype_(dtype),
        context_(std::move(context)) {
    const Component& c = autoencoder_.component;
    const auto own = c.model->latents(c.config);
    if (own && own->scaled) space_.scale = 1, space_.shift = 0;
  }

  Tensor decode(const Tensor& samples) {
    const Shape& s = samples.shape();
    const Shape one{1, s[1], s[2], s[3]};
    if (!plan_ || size_ != one) {
      const EntryCall call{"decode", {{"latents", one}}, {"pixels"}};
      plan_.emplace(
          entry_plan(autoencoder_.component, call, dtype_, autoencoder_.weights, context_));
      size_ = one;
    }
    Tensor out(DType::f32, {s[0], s[1] * space_.factor, s[2] * space_.factor, 3});
    for (int64_t i = 0; i < s[0]; ++i) {
      const Tensor latents = samples.rows(i, i + 1).clone();
      for (float& v : latents.span<float>())
        v = static_cast<float>(v / space_.scale + space_.shift);
      const Tensor pixels = plan_->run({{"latents", latents}}).at("pixels");
      const auto from = pixels.span<float>();
      std::ranges::transform(from, out.rows(i, i + 1).span<float>().begin(),
                             [](float v) { return std::clamp(v, -1.f, 1.f); });
    }
    return out;
  }

 private:
  LoadedComponent autoencoder_;
  LatentSpace space_;
  DType dtype_;
  Context context_;
  std::optional<Plan> plan_;
  Shape size_;
};

}  // namespace

Decoder latent_decoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype,
                       Context context) {
  const std::string name = autoencoder.component.model->name;
  const auto decoder =
      std::make_shared<LatentDecoder>(std::move(autoencoder), space, dtype, std::move(context));
  return {name, [decoder](const Tensor& samples) { return decoder->decode(samples); }};
}

}  // namespace ebb
