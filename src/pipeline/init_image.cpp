#include "pipeline/init_image.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "io/pixels.h"
#include "io/resize.h"
#include "pipeline/latent_resize.h"
#include "pipeline/picture_dialect.h"

namespace ebb {
namespace {

class InitMode : public RunMode {
 public:
  InitMode(Tensor pixels, const Shape& sample, bool samples)
      : pixels_(std::move(pixels)), height_(sample[0]), width_(sample[1]), samples_(samples) {}
  void prepare(const RunTools& tools, RunInputs& inputs) const override {
    EncodedImage image = tools.encode(pixels_);
    const bool is_of_run = image.mean.shape()[1] == height_ && image.mean.shape()[2] == width_;
    inputs.data =
        is_of_run ? image.mean : resized(image.mean, height_, width_, LatentFilter::bilinear);
    if (samples_ && is_of_run) inputs.deviation = image.deviation;
  }

 private:
  Tensor pixels_;
  int64_t height_, width_;  // of the run's latents
  bool samples_;
};

// `inner` in the middle. A1111 has Pillow enlarge an edge of no width, whose bicubic filter then
// lies half a pixel outside of the picture: 9/8 of the last row less 1/8 of the one before it.
Tensor filled_around(const Tensor& inner, ImageSize size) {
  const Shape& s = inner.shape();
  const int64_t h = s[0], w = s[1], channels = s[2];
  const int64_t top = size.height / 2 - h / 2, left = size.width / 2 - w / 2;
  Tensor out(DType::u8, {size.height, size.width, channels});
  const auto from = inner.span<uint8_t>();
  const auto at = [&](int64_t y, int64_t x, int64_t c) {
    return static_cast<double>(from[static_cast<size_t>((y * w + x) * channels + c)]);
  };
  // A place's own row or column, or the nearest one, and the one within that.
  const auto edge = [](int64_t place, int64_t side) {
    const int64_t near = std::clamp<int64_t>(place, 0, side - 1);
    const int64_t next = std::clamp<int64_t>(place < 0 ? 1 : side - 2, 0, side - 1);
    return std::pair{near, near == place ? near : next};
  };
  uint8_t* to = out.span<uint8_t>().data();
  for (int64_t y = 0; y < size.height; ++y)
    for (int64_t x = 0; x < size.width; ++x) {
      const auto [near_y, next_y] = edge(y - top, h);
      const auto [near_x, next_x] = edge(x - left, w);
      for (int64_t c = 0; c < channels; ++c) {
        const double v = 1.125 * at(near_y, near_x, c) - 0.125 * at(next_y, next_x, c);
        *to++ = static_cast<uint8_t>(std::clamp(std::floor(v + 0.5), 0.0, 255.0));
      }
    }
  return out;
}

}  // namespace

FitRule fit_rule(std::string_view name) {
  constexpr std::pair<std::string_view, FitRule> rules[] = {{"stretch", FitRule::stretch},
                                                            {"crop", FitRule::crop},
                                                            {"fill", FitRule::fill},
                                                            {"latent", FitRule::latent}};
  for (const auto& [known, rule] : rules)
    if (known == name) return rule;
  fail("generate: --fit must be stretch, crop, fill or latent (got '", name, "')");
}

Tensor fitted(const Tensor& picture, ImageSize size, FitRule rule) {
  const Shape& s = picture.shape();
  if (s[0] == size.height && s[1] == size.width) return picture;
  if (rule == FitRule::latent) return picture;
  if (rule == FitRule::stretch) return io::resize(picture, size.height, size.width);
  if (rule == FitRule::fill) {
    const ImageSize inner = size_within(picture, size);
    return filled_around(io::resize(picture, inner.height, inner.width), size);
  }
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

ImageSize size_within(const Tensor& picture, ImageSize size, bool to_nearest) {
  const int64_t h = picture.shape()[0], w = picture.shape()[1];
  const auto divided = [&](int64_t a, int64_t b) {
    return std::max<int64_t>((a + (to_nearest ? b / 2 : 0)) / b, 1);
  };
  if (w * size.height > h * size.width)
    return {.height = std::min(divided(h * size.width, w), size.height), .width = size.width};
  return {.height = size.height, .width = std::min(divided(w * size.height, h), size.width)};
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

Tensor of_multiples(const Tensor& picture, int64_t multiple) {
  const ImageSize whole = size_of_run(picture, multiple);
  if (whole.height > picture.shape()[0] || whole.width > picture.shape()[1])
    return io::resize(picture, whole.height, whole.width);
  return io::crop(picture, 0, 0, whole.height, whole.width);
}

std::shared_ptr<const RunMode> init_mode(const Tensor& picture, const ResolvedRequest& r) {
  const bool samples =
      picture_dialect(r.options.dialect).samples_posterior && r.noise.source != "ebb";
  return std::make_shared<InitMode>(signed_pixels(picture), r.sample, samples);
}

}  // namespace ebb
