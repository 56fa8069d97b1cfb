// Images: PNG, JPEG and WebP files to u8 tensors [H,W,C], and PNG files of them
// (io/picture_file.h writes all three).
//
// Pictures come upright (EXIF orientation) and in sRGB: from profiles of curves and a matrix, and
// in PNG from gamma and primaries. Other profiles (tables, CMYK) and data that cannot be read are
// left aside with a line in the notes. Alpha is composited over white. 16-bit samples are rounded
// to 8. Colour becomes grey by the luma of BT.601 (as in JPEG). CMYK becomes RGB without a profile.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/image_limits.h"
#include "core/tensor.h"

namespace ebb::io {

// What decode_image() refuses before it allocates: small files can ask for much memory.
struct ImageLimits {
  int64_t side = longest_image_side;   // pixels
  int64_t pixels = most_image_pixels;  // height x width
  int64_t file = int64_t{256} << 20;   // bytes
};

// What decode_image() left undone, for people; "" if nothing.
struct ImageNotes {
  std::string orientation, colour;
};

// Decodes a file in memory; the first bytes determine its format, not `name`, which is only for
// errors. channels: 1, 3 or 0 (1 for grey images, 3 otherwise). u8 [H,W,C]. Throws Error for
// unknown formats, broken or truncated files and exceeded limits.
Tensor decode_image(std::span<const uint8_t> bytes, const std::string& name, int64_t channels = 0,
                    const ImageLimits& limits = {}, ImageNotes* notes = nullptr);
// The same with the channels that the file has, alpha among them: u8 [H,W,C] of 1 to 4.
Tensor decode_with_alpha(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits = {});
// True if the bytes start like a format that decode_image() knows.
bool looks_like_image(std::span<const uint8_t> bytes);
Tensor read_image(const std::string& path, int64_t channels = 0, const ImageLimits& limits = {},
                  ImageNotes* notes = nullptr);

// u8 [H,W,C] of 1 to 4 channels (grey, grey and alpha, RGB, RGB and alpha) to 1 or 3.
Tensor convert_channels(const Tensor& image, int64_t channels);

// A PNG of u8 [H,W,C], C = 1 or 3, with text chunks (keywords of 1 to 79 printable Latin-1
// characters; values are UTF-8: tEXt where ASCII, else iTXt). The bytes are a function of the
// arguments. write_png replaces the file whole or not at all.
std::vector<uint8_t> encode_png(const Tensor& image,
                                const std::map<std::string, std::string>& text = {});
void write_png(const std::string& path, const Tensor& image,
               const std::map<std::string, std::string>& text = {});

// The tEXt, zTXt and iTXt chunks, as UTF-8; a keyword met twice keeps its first text. Throws Error
// for broken files and sizes over ImageLimits.
std::map<std::string, std::string> png_text(std::span<const uint8_t> bytes,
                                            const std::string& name);
std::map<std::string, std::string> read_png_text(const std::string& path);

// [H,W] of a grid of so many images [h,w,...].
Shape grid_shape(const Shape& image, int64_t count, int64_t columns, int64_t padding = 0);
// u8 images [H,W,C] of one shape in rows of `columns`, `padding` black pixels between and around.
Tensor image_grid(const std::vector<Tensor>& images, int64_t columns, int64_t padding = 0);

}  // namespace ebb::io
