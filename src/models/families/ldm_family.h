// What the families of latent diffusion's U-Net share: one latent space but for its scale, and how
// their fields tell them apart.
#pragma once

#include "models/config_fields.h"
#include "models/family.h"

namespace ebb::families {

// Those of nn::LdmUnet, which denoisers and control networks have.
struct LdmFields {
  int64_t context = 0, vector = 0, sizes = 0, extra_channels = 0;

  // None of other networks.
  static std::optional<LdmFields> of(const ModelConfig& config) {
    const auto context = find_number(config, "context"), vector = find_number(config, "vector");
    if (!context || !vector) return {};
    return LdmFields{*context, *vector, number_in(config, "sizes"),
                     number_in(config, "extra_channels")};
  }
};

// Of a test of such fields.
template <Likeness (*test)(const LdmFields&)>
Likeness by_fields(const ModelConfig& config) {
  const auto fields = LdmFields::of(config);
  return fields ? test(*fields) : Likeness::none;
}

// A mask and the latents of an image, these alone, or a map of one channel.
inline std::vector<std::pair<int64_t, Beside>> ldm_beside() {
  return {{5, Beside::mask_and_image}, {4, Beside::image}, {1, Beside::depth_map}};
}

inline LatentSpace ldm_latents(const char* of, double scale) {
  return {.factor = 8, .of = of, .scale = scale};
}

}  // namespace ebb::families
