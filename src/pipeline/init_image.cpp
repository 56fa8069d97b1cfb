#include "pipeline/init_image.h"

#include <algorithm>

#include "base/error.h"
#include "io/pixels.h"
#include "io/resize.h"
#include "pipeline/picture_dialect.h"

namespace ebb {
namespace {

class InitMode : public RunMode {
 public:
  InitMode(Tensor pixels, bool samples) : pixels_(std::move(pixels)), samples_(samples) {}
  void prepare(const RunTools& tools, RunInputs& inputs) const override {
    EncodedImage image = tools.encode(pixels_);
    inputs.data = image.mean;
    if (samples_) inputs.deviation = image.deviation;
  }

 private:
  Tensor pixels_;
  bool samples_;
};

}  // namespace

FitRule fit_rule(std::string_view name) {
  if (name == "stretch") return FitRule::stretch;
  require(name == "crop", "generate: --fit must be stretch or crop (got '", name, "')");
  return FitRule::crop;
}

Tensor fitted(const Tensor& picture, ImageSize size, FitRule rule) {
  const Shape& s = picture.shape();
  if (s[0] == size.height && s[1] == size.width) return picture;
  if (rule == FitRule::stretch) return io::resize(picture, size.height, size.width);
  // of what is cut, the longer side is resized with the picture
  const bool wide = s[1] * size.height > s[0] * size.width;
  ImageSize whole = size;
  if (wide)
    whole.width = std::max((s[1] * size.height + s[0] / 2) / s[0], size.width);
  else
    whole.height = std::max((s[0] * size.width + s[1] / 2) / s[1], size.height);
  return io::crop(io::resize(picture, whole.height, whole.width), (whole.height - size.height) / 2,
                  (whole.width - size.width) / 2, size.height, size.width);
}

Tensor signed_pixels(const Tensor& picture) {
  const Shape& s = picture.shape();
  Tensor out(DType::f32, {1, s[0], s[1], s[2]});
  io::signed_pixels(picture.span<uint8_t>(), out.span<float>());
  return out;
}

ImageSize own_size(const LoadedModel& m) {
  const auto space = m.model->latents(m.config);
  const int64_t side = m.config.common().image_size * (space ? space->factor : 1);
  return {side, side};
}

int64_t pixel_multiple(const LoadedModel& m) {
  const auto space = m.model->latents(m.config);
  return std::max<int64_t>(m.model->size_multiple(m.config), 1) * (space ? space->factor : 1);
}

ImageSize size_of_run(const Tensor& picture, int64_t multiple) {
  const auto down = [multiple](int64_t side) {
    return std::max(side / multiple, int64_t{1}) * multiple;
  };
  return {.height = down(picture.shape()[0]), .width = down(picture.shape()[1])};
}

std::shared_ptr<const RunMode> init_mode(const Tensor& picture, const ResolvedRequest& r) {
  const bool samples =
      picture_dialect(r.options.dialect).samples_posterior && r.noise.source != "ebb";
  return std::make_shared<InitMode>(signed_pixels(picture), samples);
}

}  // namespace ebb
