#include "pipeline/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ebb {
namespace {

Tensor clipped(Tensor samples) {
  for (float& v : samples.span<float>()) v = std::clamp(v, -1.f, 1.f);
  return samples;
}

}  // namespace

std::optional<Decoder> decoder_of(const Model& model, const ModelConfig& config) {
  const int64_t channels = config.common().in_channels;
  if (model.latents(config) || (channels != 1 && channels != 3)) return {};
  return Decoder{"identity", clipped};
}

std::string samples_text(const Model& model, const ModelConfig& config) {
  const CommonConfig& c = config.common();
  const Shape sample{c.image_size, c.image_size, c.in_channels};
  const auto latents = model.latents(config);
  return str(latents ? "latents " : "samples ", sample, latents ? " of " + latents->of : "");
}

Tensor to_pixels(const Tensor& images) {
  Tensor out(DType::u8, images.shape());
  const auto from = images.span<float>();
  const auto to = out.span<uint8_t>();
  for (size_t i = 0; i < from.size(); ++i)
    to[i] = static_cast<uint8_t>(std::lround(std::clamp((from[i] + 1) * 127.5f, 0.0f, 255.0f)));
  return out;
}

Tensor channels_first(const Tensor& images) {
  const Shape& s = images.shape();
  const int64_t pixels = s[1] * s[2], channels = s[3];
  Tensor out(DType::f32, {s[0], channels, s[1], s[2]});
  const float* from = images.span<float>().data();
  for (float& to : out.span<float>()) {
    const int64_t i = &to - out.span<float>().data();
    const int64_t image = i / (channels * pixels), c = i / pixels % channels, pixel = i % pixels;
    to = from[(image * pixels + pixel) * channels + c];
  }
  return out;
}

Tensor image_at(const Tensor& images, int64_t index) {
  const Shape& s = images.shape();
  return images.rows(index, index + 1).reshape({s[1], s[2], s[3]});
}

Tensor stacked(const std::vector<Tensor>& images) {
  const Shape& s = images.at(0).shape();
  const auto count = static_cast<int64_t>(images.size());
  Tensor out(DType::f32, {count, s[0], s[1], s[2]});
  for (int64_t i = 0; i < count; ++i)
    std::ranges::copy(images[static_cast<size_t>(i)].span<float>(),
                      out.rows(i, i + 1).span<float>().begin());
  return out;
}

}  // namespace ebb
