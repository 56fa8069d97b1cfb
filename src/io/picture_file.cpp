#include "io/picture_file.h"

#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "io/exif_text.h"
#include "io/file.h"
#include "io/image.h"
#include "io/image_decoders.h"
#include "io/image_encoders.h"
#include "io/tiff.h"

namespace ebb::io {
namespace {

using Texts = std::map<std::string, std::string>;

// Of the marker that holds them: its length has 16 bits and counts itself.
constexpr size_t jpeg_exif_limit = 0xffff - 2;

std::vector<uint8_t> exif_for(PictureFormat format, const Texts& text) {
  if (text.empty()) return {};
  std::vector<uint8_t> exif = exif_of_text(text);
  if (format == PictureFormat::jpeg)
    exif.insert(exif.begin(), exif_prefix.begin(), exif_prefix.end());
  require(format != PictureFormat::jpeg || exif.size() <= jpeg_exif_limit,
          "image: the settings are longer than a JPEG file holds (", exif.size(), " bytes of ",
          jpeg_exif_limit, "); PNG and WebP hold them");
  return exif;
}

// By the extension of the path.
std::vector<uint8_t> encoded(const std::string& path, const Tensor& image, const Texts& text,
                             int quality) {
  const auto format = picture_format(path);
  require(format.has_value(), "image: must end in .png, .jpg, .jpeg or .webp  ", path);
  return encode_picture(*format, image, text, quality);
}

}  // namespace

std::optional<PictureFormat> picture_format(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == path.npos) return std::nullopt;
  std::string extension(path.substr(dot));
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (extension == ".png") return PictureFormat::png;
  if (extension == ".jpg" || extension == ".jpeg") return PictureFormat::jpeg;
  if (extension == ".webp") return PictureFormat::webp;
  return std::nullopt;
}

std::string_view name_of(PictureFormat format) {
  constexpr std::string_view names[] = {"PNG", "JPEG", "WebP"};
  return names[static_cast<size_t>(format)];
}

int64_t side_limit(PictureFormat format) {
  constexpr int64_t limits[] = {png_side, jpeg_side, webp_side};
  return limits[static_cast<size_t>(format)];
}

std::vector<uint8_t> encode_picture(PictureFormat format, const Tensor& image, const Texts& text,
                                    int quality) {
  require(quality >= 1 && quality <= 100, "image: quality must be 1 to 100 (", quality, ")");
  switch (format) {
    case PictureFormat::png: return encode_png(image, text);
    case PictureFormat::jpeg: return encode_jpeg(image, exif_for(format, text), quality);
    case PictureFormat::webp: return encode_webp(image, exif_for(format, text), quality);
  }
  fail("image: no such format");
}

void check_picture_text(PictureFormat format, const Texts& text) { exif_for(format, text); }

void write_picture(const std::string& path, const Tensor& image, const Texts& text,
                   const PictureWriting& how) {
  AtomicFile file(path, "image");
  file.write(encoded(path, image, text, how.quality));
  file.commit(how.existing);
}

bool write_new_picture(const std::string& path, const Tensor& image, const Texts& text,
                       int quality) {
  std::error_code ignored;  // the name is free, or taken meanwhile
  if (std::filesystem::exists(path, ignored)) return false;
  return write_new_file(path, encoded(path, image, text, quality), "image");
}

Texts picture_text(std::span<const uint8_t> bytes, const std::string& name) {
  require(looks_like_image(bytes), "image: must be a PNG, JPEG or WebP file (", bytes.size(),
          " bytes)  ", name);
  if (is_png(bytes)) return png_text(bytes, name);
  return text_of_exif(metadata_of(bytes, name).exif);
}

Texts read_picture_text(const std::string& path) {
  const std::string bytes = read_whole_file(path, "image", ImageLimits{}.file);
  return picture_text({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path);
}

}  // namespace ebb::io
