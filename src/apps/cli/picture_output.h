// Where pictures go: what --out and --size of commands that make them say.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "models/model.h"

namespace ebb::cli {

enum class Output : uint8_t { grid, folder, safetensors, npy };

// Throws Error for another image format and for what is nearly one of the known extensions: its
// name would become a folder's. The name of a folder that there is, or with a / behind, is one.
Output output_of(const std::string& out, std::string_view command);
// "": none is needed.
std::string folder_of(const std::string& out, std::string_view command);
// Throws Error unless `out` can be written.
void check_output_path(const std::string& out, std::string_view command);
// "auto", "512" or "768x512", width by height; {} for auto. Throws Error.
ImageSize image_size(const std::string& text, std::string_view command);

// u8 [H,W,C] each, into one PNG (several as a grid) or a file each in a folder. `text`: the
// metadata of a picture, of the first one for a grid; `columns`: 0: as many as rows.
using PictureText = std::function<std::map<std::string, std::string>(int64_t index)>;
void write_pictures(const std::string& out, const std::vector<Tensor>& images, int64_t columns,
                    const PictureText& text);
// The picture of that number into a folder.
void write_picture_in(const std::string& folder, int64_t index, const Tensor& image,
                      const PictureText& text);

}  // namespace ebb::cli
