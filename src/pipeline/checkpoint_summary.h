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
// Of a folder as diffusers lays it out; "fault": why ebb generate does not take it. Throws Error.
Summary summary_of_folder(const std::string& path, const std::string& variant = "");
// The sentence on which flag takes a file, with what the summary says is missing beside it.
std::string with_missing(const std::string& use, const Summary& summary);

}  // namespace ebb
