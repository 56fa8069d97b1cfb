// What the web UI's text says of random numbers: variations, the size that they were drawn for and
// ENSD, as options of the source of noise `a1111` (src/diffusion/noise/a1111.cpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pipeline/infotext.h"
#include "pipeline/request.h"

namespace ebb {

// Another noise of a seed.
struct NoiseVariation {
  std::string seed, strength;  // of the variation
  ImageSize drawn_for = {};    // pixels; {}: the picture's own size
  int64_t seed_delta = 0;      // of the steps' numbers (ENSD)
};
// `options` of the source with what the variation says in their place. Throws Error.
std::string varied(const std::string& options, const NoiseVariation& v);

// The seed of picture `image` of a run (-1: of all of them), as the web UI counts: its pictures
// have seeds of their own, or one seed and variation seeds.
Seed seed_of_picture(const ResolvedRequest& r, int64_t image);
// By the web UI's keys; none for other sources.
std::vector<std::pair<std::string, std::string>> noise_parameters(const ResolvedRequest& r,
                                                                  int64_t image);
// Options of the source that a text names; "": none.
std::string noise_options_of(const Infotext& text);
// Whether it is one of the keys that this reads.
bool is_noise_key(std::string_view key);

}  // namespace ebb
