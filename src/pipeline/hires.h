// A second pass at a larger size, which starts from what the first one made ("hires fix").
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/run_mode.h"

namespace ebb {

struct Hires {
  double scale = 2;
  // latent, latent-nearest, latent-nearest-exact, latent-bicubic, latent-antialiased,
  // latent-bicubic-antialiased (A1111's), or lanczos, of the decoded picture.
  std::string upscaler = "latent";
  int64_t steps = 0;  // 0: those of the first pass
  double strength = 0.7;
  // `upscaler` is a file with a network (CheckpointParts::hires_upscaler), which enlarges the
  // decoded picture by `scale`; the rest, to the pass's size, is resized.
  bool network = false;
};
// "SCALE[:upscaler[:steps[:strength]]]"; what is empty keeps its default, and names may be written
// as in A1111's menu. An upscaler of no known name is a file with a network. Throws Error.
Hires parse_hires(std::string_view text);

// The name in A1111's menu; of a network its own.
std::string hires_menu_name(std::string_view upscaler);
// The names of all but networks.
std::vector<std::string> hires_upscalers();
// The upscaler that is meant, as ebb or A1111's menu writes it, whatever the case and punctuation:
// "Latent (nearest-exact)"; "" for others.
std::string hires_upscaler(std::string_view name);

// The decoded picture is enlarged, not the latents.
bool enlarges_pixels(const Hires& hires);

// Throws Error for a scale or a strength that there is not.
void check(const Hires& hires);

// Of a picture: scaled and rounded down to a multiple. Throws Error.
ImageSize hires_size(const Hires& hires, ImageSize size, int64_t multiple);

// Of the pass that `request` is. Throws Error for upscalers that there are none of.
std::shared_ptr<const RunMode> hires_mode(const Hires& hires, const ResolvedRequest& request);

}  // namespace ebb
