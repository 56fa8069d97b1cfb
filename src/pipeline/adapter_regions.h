// Where an IP-Adapter acts: in which blocks of the U-Net, and in which region of the picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipeline/load_model.h"

namespace ebb {

// The block of each layer that an image adapter counts (nn::image_layers()), as diffusers counts
// them: "down.2.1" is down_blocks.2.attentions.1; "mid". A block of several layers has several.
std::vector<std::string> adapter_blocks(const LoadedModel& denoiser);

// A factor for each of these layers, of a text:
//   ""                     1 for all
//   "up.0.1=0.8,down.2"    the blocks with these names, or whose names begin with them; without a
//                          number 1; of several the longest; the others 0
//   "style", "layout" or "composition"   those of the family (Family::style_blocks), likewise; in a
//                          sum "style+layout", with a number "style=0.7"
//   "0,0,1,..."            a number for each block: down, mid, up
// Throws Error that names the blocks.
std::vector<double> block_strengths(std::string_view text, const LoadedModel& denoiser);

// nn::image_mask() f32 [1,T] of a mask u8 [H,W,1], as diffusers makes it: stretched to the picture
// (Lanczos), 1 from half brightness on, and made as small as the features of each layer by torch's
// bicubic filter, without antialiasing. `latents`: {H,W}, each `factor` pixels.
Tensor region_mask(const Tensor& mask, const Shape& latents, int64_t factor);

}  // namespace ebb
