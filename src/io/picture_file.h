// Pictures in files with texts: PNG in text chunks, JPEG and WebP in EXIF data (io/exif_text.h).
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "io/file.h"

namespace ebb::io {

enum class PictureFormat : uint8_t { png, jpeg, webp };

// By extension, in any case: .png, .jpg, .jpeg, .webp; none for others.
std::optional<PictureFormat> picture_format(std::string_view path);

// "PNG", and the most pixels that a side of such a picture may have.
std::string_view name_of(PictureFormat format);
int64_t side_limit(PictureFormat format);

// Of JPEG and WebP, 1 to 100. From 90 on JPEG keeps the colours of every pixel; a WebP of 100 is
// lossless.
constexpr int default_quality = 95;

// u8 [H,W,C], C = 1 or 3. The bytes are a function of the arguments. Throws Error for sides or
// texts that the format cannot hold: side_limit(), and in JPEG 64 kB of EXIF data.
std::vector<uint8_t> encode_picture(PictureFormat format, const Tensor& image,
                                    const std::map<std::string, std::string>& text = {},
                                    int quality = default_quality);
// Throws Error where `text` is more than a file of the format holds, which is known before the
// picture is.
void check_picture_text(PictureFormat format, const std::map<std::string, std::string>& text);

struct PictureWriting {
  int quality = default_quality;
  Existing existing = Existing::replaced;
};
// The format by the extension; replaces the file whole or not at all.
void write_picture(const std::string& path, const Tensor& image,
                   const std::map<std::string, std::string>& text = {},
                   const PictureWriting& how = {});

// The same where no file is yet: false, and nothing is written, where there is one.
bool write_new_picture(const std::string& path, const Tensor& image,
                       const std::map<std::string, std::string>& text = {},
                       int quality = default_quality);

// The texts of a PNG, JPEG or WebP file, whichever its bytes say. Throws Error for files that are
// none or broken.
std::map<std::string, std::string> picture_text(std::span<const uint8_t> bytes,
                                                const std::string& name);
std::map<std::string, std::string> read_picture_text(const std::string& path);

}  // namespace ebb::io
