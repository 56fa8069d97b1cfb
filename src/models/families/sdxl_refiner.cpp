// The refiner of Stable Diffusion XL: CLIP-G alone, and a score of aesthetics for the target's
// size.
#include "models/families/ldm_family.h"

namespace ebb::families {

const Family& sdxl();  // of sdxl.cpp

// Networks that read one encoder are similar to it.
Likeness like_refiner(const LdmFields& f) {
  constexpr int64_t clip_g = 1280, numbers = 5;
  if (f.vector <= 0) return Likeness::none;
  return f.context == clip_g || f.sizes == numbers ? Likeness::same : Likeness::similar;
}

namespace {

std::vector<float> sizes(ImageSize size, bool negative) {
  constexpr float good = 6, bad = 2.5;
  return {static_cast<float>(size.height), static_cast<float>(size.width), 0, 0,
          negative ? bad : good};
}

Family made_of_xl() {
  Family f = sdxl();
  f.name = "Stable Diffusion XL refiner";
  f.is = by_fields<like_refiner>;
  f.variants = {{"sdxl_refiner", "the refiner of XL"}};
  f.texts.erase(f.texts.begin());
  f.texts[0].original = "conditioner.embedders.0.model.";
  f.sizes = sizes;
  f.diffusers_zeros = false;
  f.does = "Img2ImgPipeline";
  f.index.emplace_back("requires_aesthetics_score", true);
  return f;
}

}  // namespace

const Family& sdxl_refiner() {
  static const Family f = made_of_xl();
  return f;
}

}  // namespace ebb::families
