// Control LoRAs: control networks whose weights are those of the U-Net with changes of low rank, so
// that a file has a twentieth of the bytes of a whole network.
#pragma once

#include <memory>
#include <string>

#include "io/tensor_file.h"
#include "pipeline/load_model.h"
#include "pipeline/text_stage.h"

namespace ebb {

// Whether the config of a control network is of such a file.
bool is_control_lora(const Component& network);

// The whole network: X.weight is the denoiser's plus X.up times X.down where the file has these,
// else the file's own tensor, or else the denoiser's; LoRAs on the denoiser have no part in it.
// Sums are computed when a device asks for them. Throws Error, with names and shapes, where it does
// not fit the denoiser.
LoadedComponent open_control_lora(const io::TensorFile& file, const std::string& path,
                                  const Component& network, const LoadedModel& denoiser);

}  // namespace ebb
