// Where pictures go: what --out and --size of commands that make them say.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/image_limits.h"
#include "core/tensor.h"
#include "io/picture_file.h"
#include "models/model.h"

namespace ebb::cli {

enum class Output : uint8_t { grid, folder, safetensors, npy };

// grid: one picture file. Throws Error for another image format and for what is nearly one of the
// known extensions: its name would become a folder's; and for "-". The name of a folder that there
// is, or with a / behind, is one.
Output output_of(const std::string& out, std::string_view command);
// Whether a path has the name of a picture in such a folder.
bool is_numbered(const std::string& file);
// The number behind the highest of the pictures in a folder, where files of another run go on; 0
// for files and new folders.
int64_t next_number(const std::string& out);
// next_number(), of which it tells on standard error where it is not 0.
int64_t first_number(const std::string& out);
// Throws Error unless `out` can be written. A folder may be made, that of a single file is there. A
// picture replaces a picture, latents replace latents of ebb in .safetensors; `overwrite`: whatever
// is there.
void check_output_path(const std::string& out, std::string_view command, bool overwrite);
// The same once the file is made: what has appeared meanwhile and would have been refused is kept.
io::Existing existing_at(const std::string& out, bool overwrite);
// The same of any file that a flag, "eval: --out", names: what is there is replaced where `own`
// says that such a command wrote it. `rule`: what the file is otherwise, "is no plot by ebb".
void check_replaced(const std::string& file, std::string_view flag, bool overwrite,
                    std::string_view rule, const std::function<bool(const std::string&)>& own);
// Writes such a file. What has appeared there meanwhile and would have been refused is kept, and
// the new one beside it, of which the Error tells.
void write_text(const std::string& file, std::string_view text, std::string_view flag,
                bool overwrite, const std::function<bool(const std::string&)>& own);
void check_replaced_picture(const std::string& file, std::string_view flag, bool overwrite);
// "auto", "512" or "768x512", width by height; {} for auto. None of another text. The rule is for
// errors: longer sides than `longest` pixels are refused by who knows what makes the picture.
std::optional<ImageSize> parse_image_size(const std::string& text);
std::string image_size_rule(int64_t longest = longest_image_side);
// Of a command's --size. Throws Error.
ImageSize image_size(const std::string& text, std::string_view command);

// How pictures are written.
struct PictureStyle {
  std::string format = "png";  // of the files of a folder
  int64_t quality = io::default_quality;
  int64_t columns = 0;      // of a grid; 0: as many as rows, where its sides allow
  int64_t first_image = 0;  // the number of the first file of a folder
  bool overwrite = false;   // a file that is no picture
};
// Throws Error where the file that `out` names, or those of a folder, cannot hold so many pictures
// of this size, or ebb would not read the grid of them again: asked before they are made.
void check_picture_size(const std::string& out, std::string_view command, const ImageSize& size,
                        int64_t count, const PictureStyle& style = {});
// Whether the file holds a grid of so many columns, and ebb would read it again.
bool grid_fits(const std::string& out, const ImageSize& size, int64_t count, int64_t columns);
// u8 [H,W,C] each, into one file (several as a grid) or a file each in a folder, of the numbers
// from the first one on that no file has: none is replaced there. `text`: the metadata of a
// picture, of the first one for a grid. Gives the names of the files.
using PictureText = std::function<std::map<std::string, std::string>(int64_t index)>;
std::vector<std::string> write_pictures(const std::string& out, const std::vector<Tensor>& images,
                                        const PictureText& text, const PictureStyle& style = {});
// Where a part of what a file is for goes, so that one of an earlier run stays whole: the file
// itself if it is not there, else "fox-partial.png" or what else is free.
std::string partial_file(const std::string& out);

}  // namespace ebb::cli
