// Latents to pixels by an autoencoder.
#pragma once

#include <functional>

#include "pipeline/decoder.h"
#include "pipeline/text_stage.h"
#include "pipeline/tiles.h"

namespace ebb {

// Decodes one image at a time, so that batches need no more memory. `space`: the denoiser's latents
// are (the autoencoder's - shift) * scale. `dtype` as entry_plan() takes it. Where the device's
// memory is too short for a whole image, the largest tiles that fit are decoded, and `tells` is
// called with them once a size.
Decoder latent_decoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype,
                       Context context, std::function<void(const Tiling&)> tells = {},
                       CircularAxes circular = {});

}  // namespace ebb
