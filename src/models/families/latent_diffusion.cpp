// Latent diffusion with text of other widths than Stable Diffusion's: read as Stable Diffusion 1
// reads it.
#include "models/families/ldm_family.h"

namespace ebb::families {

const Family& sd1();  // of sd1.cpp

namespace {

Likeness is(const LdmFields& f) { return f.vector <= 0 ? Likeness::similar : Likeness::none; }

Family like_sd1() {
  Family f = sd1();
  f.name = "latent diffusion";
  f.is = by_fields<is>;
  f.variants.clear();
  f.kohya_version.clear();
  f.heads = 0;
  f.markers = true;
  return f;
}

}  // namespace

const Family& latent_diffusion() {
  static const Family f = like_sd1();
  return f;
}

}  // namespace ebb::families
