// What a file without a denoiser is for, said to someone who gave it as a checkpoint.
#pragma once

#include <string>

#include "io/tensor_file.h"

namespace ebb {

// "a LoRA, which ebb generate takes as --lora beside a checkpoint (--model)"; "": not known, or
// the file has a denoiser or components of several kinds. `path`: where the file lies.
std::string purpose_of(const io::TensorFile& file, const std::string& path);

// "embedding (textual inversion): 2 vectors for CLIP-L"; "": the file is none.
std::string embedding_title(const io::TensorFile& file, const std::string& path);

}  // namespace ebb
