// Previews: pictures of a run that goes on, from the denoiser's latest prediction.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/tensor.h"
#include "pipeline/decoder.h"

namespace ebb {

// f32 [N,H,W,3] in [-1,1] of latents f32 [N,h,w,c], which are the denoiser's.
using Preview = std::function<Tensor(const Tensor& latents)>;

// A colour a latent, [N,h,w,3]: the affine map of `channels` numbers that is nearest, by least
// squares, to what `decoder` makes of fields of random latents. Decodes one picture of 256x256, at
// once.
Preview linear_preview(const Decoder& decoder, int64_t channels);

// The colours u8 [H,W,3] as text for a terminal of 24-bit colour: two pixels, one above the other,
// a character (U+2580), at most `columns` wide, and a line feed behind each row.
std::string terminal_text(const Tensor& image, int64_t columns);

}  // namespace ebb
