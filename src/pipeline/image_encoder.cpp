#include "pipeline/image_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "io/resize.h"
#include "pipeline/diffusers_folder.h"
#include "pipeline/file_purpose.h"

namespace ebb {
namespace {

// Of CLIP's training images.
constexpr std::array means = {0.48145466f, 0.4578275f, 0.40821073f},
                     deviations = {0.26862954f, 0.26130258f, 0.27577711f};

int64_t side_of(const LoadedComponent& encoder) {
  const Component& c = encoder.component;
  return find_entry(*c.model, "encode").inputs(c.config).at(0).shape[0];
}

}  // namespace

LoadedComponent load_image_encoder(const std::string& path, const std::string& variant) {
  std::string file = path;
  if (std::filesystem::is_directory(path)) file = component_weights(path, variant);
  require(!file.empty() && std::filesystem::is_regular_file(file),
          "image encoder: there is no such file, or folder with model.safetensors  ", path);
  const auto open = std::make_shared<const io::TensorFile>(io::TensorFile::open(file));
  const Component c =
      component_in(*open, file, ModelKind::image_encoder, "generate: --image-encoder");
  return {c, open_component(open, file, c)};
}

Tensor clip_pixels(const Tensor& picture, int64_t side) {
  const int64_t height = picture.shape()[0], width = picture.shape()[1],
                shorter = std::min(height, width);
  const Tensor whole = io::resize(picture, side * height / shorter, side * width / shorter,
                                  io::ResizeFilter::bicubic);
  const Tensor square = io::centre_crop(whole);
  Tensor out(DType::f32, {1, side, side, 3});
  const auto from = square.span<uint8_t>();
  const auto to = out.span<float>();
  for (size_t i = 0; i < to.size(); ++i)
    to[i] = (static_cast<float>(from[i]) / 255 - means[i % 3]) / deviations[i % 3];
  return out;
}

ImageEncoder::ImageEncoder(LoadedComponent encoder, DType dtype, Context context)
    : encoder_(std::move(encoder)), dtype_(dtype), context_(std::move(context)) {}

Plan& ImageEncoder::plan(const std::string& output) {
  const auto known = plans_.find(output);
  if (known != plans_.end()) return known->second;
  const int64_t side = side_of(encoder_);
  const EntryCall call{"encode", {{"pixels", {1, side, side, 3}}}, {output}};
  return plans_
      .emplace(output, entry_plan(encoder_.component, call, dtype_, encoder_.weights, context_))
      .first->second;
}

Tensor ImageEncoder::sketch(const std::string& output) {
  const Graph& g = plan(output).graph();
  return Tensor(g.type(g.outputs().at(0).value));
}

Tensor ImageEncoder::encode(const Tensor& picture, const std::string& output) {
  const int64_t side = side_of(encoder_);
  Tensor pixels(DType::f32, {1, side, side, 3});
  if (picture.defined()) pixels = clip_pixels(picture, side);
  Tensor out = plan(output).run({{"pixels", pixels}}).at(output).clone();
  for (const float v : out.span<float>())
    require(std::isfinite(v), "image encoder: ", output, " is not finite in ", dtype_,
            "; --dtype f32 may mend that");
  return out;
}

}  // namespace ebb
