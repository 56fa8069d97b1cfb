// What a file of tensors is for, said to someone who gave it to a flag that takes another kind.
#pragma once

#include <string>
#include <string_view>

#include "io/tensor_file.h"
#include "models/model.h"

namespace ebb {

// What stands behind "the file": "is a LoRA, which ebb generate takes as --lora beside a checkpoint
// (--model)", "has 2 tensors of no network that ebb knows, such as ...". `path`: where it lies.
std::string purpose_of(const io::TensorFile& file, const std::string& path);

// "ebb generate takes it as --vae beside a checkpoint (--model)"; "": nothing takes it.
std::string use_text(const io::TensorFile& file, const std::string& path);

// Throws Error: what `flag` ("generate: --vae") takes, and what the file is.
[[noreturn]] void fail_kind(std::string_view flag, ModelKind wanted, const io::TensorFile& file,
                            const std::string& path);
// The first network of this kind in the file. Throws such an Error if it has none.
Component component_in(const io::TensorFile& file, const std::string& path, ModelKind wanted,
                       std::string_view flag);

// "embedding (textual inversion): 2 vectors for CLIP-L"; "": the file is none.
std::string embedding_title(const io::TensorFile& file, const std::string& path);

}  // namespace ebb
