// What a file is, in words: its family, what it predicts, its dtypes, what it lacks.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/tensor_file.h"
#include "models/model.h"

namespace ebb {

// Lines of a name and a text: "family", "Stable Diffusion XL, for inpainting". Only what is to be
// said: empty for files that ebb itself has written, whose metadata says more.
using Summary = std::vector<std::pair<std::string, std::string>>;

// `components`: those of the file, examined.
Summary summary_of(const io::TensorFile& file, const std::vector<Component>& components,
                   const std::string& path);
// Of a folder as diffusers lays it out. Throws Error.
Summary summary_of_folder(const std::string& path, const std::string& variant = "");

}  // namespace ebb
