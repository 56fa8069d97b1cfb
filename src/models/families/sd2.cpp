// Stable Diffusion 2: CLIP-H, the layer before the last, normed.
#include <cmath>

#include "models/families/ldm_family.h"

namespace ebb::families {
namespace {

Likeness is(const LdmFields& f) {
  constexpr int64_t clip_h = 1024;
  return f.vector == 0 && f.context == clip_h ? Likeness::same : Likeness::none;
}

double deviation(const Tensor& t) {
  double sum = 0, squares = 0;
  const Tensor wide = t.to(DType::f32);
  for (const float v : wide.span<float>()) sum += double{v}, squares += double{v} * double{v};
  const double n = static_cast<double>(t.numel()), mean = sum / n;
  return std::sqrt(std::max(squares / n - mean * mean, 0.0));
}

// The network of 768 pixels predicts v and has the shapes of that of 512, which predicts noise; a
// bias of its last transformer has a deviation beyond 0.09 (after ComfyUI).
void examine(ModelConfig& config, const FileFacts& file) {
  constexpr double v_deviation = 0.09;
  if (!file.metadata.contains("modelspec.prediction_type") &&
      LdmFields::of(config)->extra_channels == 0) {
    const Tensor bias = file.load("output_blocks.11.1.transformer_blocks.0.norm1.bias");
    if (bias.defined() && deviation(bias) > v_deviation) set_in(config, "prediction", "v");
  }
  if (text_in(config, "prediction") == "v") set_in(config, "image_size", "96");
}

}  // namespace

const Family& sd2() {
  static const Family f{.name = "Stable Diffusion 2",
                        .is = by_fields<is>,
                        .variants = {{"sd2", "Stable Diffusion 2"}},
                        .texts = {{.encoder = "clip_h",
                                   .layer = 2,
                                   .cut_layers = 23,  // as Hugging Face has it
                                   .fixed = true,
                                   .original = "cond_stage_model.model.",
                                   .open_clip = true}},
                        .beside = ldm_beside(),
                        .latents = ldm_latents("Stable Diffusion's autoencoder", 0.18215),
                        .diffusion = "betas=scaled_linear",
                        .own_schedule = "karras",
                        .examine = examine,
                        .pipeline = "StableDiffusion",
                        .kohya_version = "sd_v2",
                        .checker = true};
  return f;
}

}  // namespace ebb::families
