// Stable Diffusion 1: CLIP-L, the last layer, normed.
#include "models/families/ldm_family.h"

namespace ebb::families {
namespace {

Likeness is(const LdmFields& f) {
  constexpr int64_t clip_l = 768;
  return f.vector == 0 && f.context == clip_l ? Likeness::same : Likeness::none;
}

}  // namespace

const Family& sd1() {
  static const Family f{
      .name = "Stable Diffusion 1",
      .is = by_fields<is>,
      .variants = {{"sd15", "Stable Diffusion 1"}},
      .texts = {{.encoder = "clip_l", .original = "cond_stage_model.transformer."}},
      .beside = ldm_beside(),
      .latents = ldm_latents("Stable Diffusion's autoencoder", 0.18215),
      .heads = 8,
      .diffusion = "betas=scaled_linear",
      .own_schedule = "karras",
      .style_blocks = "up.1",
      .layout_blocks = "down.2,mid",
      .pipeline = "StableDiffusion",
      .other_pipelines = {"LatentConsistencyModel"},
      .kohya_version = "sd_v1",
      .checker = true};
  return f;
}

}  // namespace ebb::families
