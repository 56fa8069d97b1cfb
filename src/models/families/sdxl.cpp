// Stable Diffusion XL: CLIP-L and CLIP-G, the layer before the last, not normed, and G's projected
// text beside the sizes of the picture (Podell et al. 2023, arXiv:2307.01952).
#include "models/families/ldm_family.h"

namespace ebb::families {

Likeness like_refiner(const LdmFields& fields);  // of sdxl_refiner.cpp

namespace {

Likeness is(const LdmFields& f) {
  return f.vector > 0 && like_refiner(f) != Likeness::same ? Likeness::same : Likeness::none;
}

// Of the original, its crop from the top and the left, and the target.
std::vector<float> sizes(ImageSize size, bool) {
  const auto h = static_cast<float>(size.height), w = static_cast<float>(size.width);
  return {h, w, 0, 0, h, w};
}

}  // namespace

const Family& sdxl() {
  static const Family f{.name = "Stable Diffusion XL",
                        .is = by_fields<is>,
                        .variants = {{"sdxl", "Stable Diffusion XL"},
                                     {"ssd1b", "SSD-1B"},
                                     {"segmind_vega", "Segmind-Vega"}},
                        .texts = {{.encoder = "clip_l",
                                   .layer = 2,
                                   .normed = false,
                                   .fixed = true,
                                   .original = "conditioner.embedders.0.transformer."},
                                  {.encoder = "clip_g",
                                   .layer = 2,
                                   .normed = false,
                                   .projected = true,
                                   .fixed = true,
                                   .number = 2,
                                   .original = "conditioner.embedders.1.model.",
                                   .open_clip = true,
                                   .folder = "text_encoder_2"}},
                        .pooled = 1280,
                        .sizes = sizes,
                        .beside = ldm_beside(),
                        .zeros_for_empty = true,
                        .diffusers_zeros = true,
                        .latents = ldm_latents("Stable Diffusion XL's autoencoder", 0.13025),
                        .image_size = 128,
                        .diffusion = "betas=scaled_linear",
                        .own_schedule = "karras",
                        .decoder_overflows = true,
                        .style_blocks = "up.0.1",
                        .layout_blocks = "down.2.1",
                        .markers = true,
                        .pipeline = "StableDiffusionXL",
                        .index = {{"force_zeros_for_empty_prompt", true}},
                        .kohya_version = "sdxl_base_v1-0",
                        .kohya_original = true};
  return f;
}

}  // namespace ebb::families
