// Latents to pixels by an autoencoder.
#pragma once

#include "pipeline/decoder.h"
#include "pipeline/text_stage.h"

namespace ebb {

// Decodes one image at a time, so that batches need no more memory. `space`: the denoiser's latents
// are (the autoencoder's - shift) * scale. `dtype` as entry_plan() takes it.
Decoder latent_decoder(LoadedComponent autoencoder, const LatentSpace& space, DType dtype,
                       Context context);

}  // namespace ebb
