#include "io/image.h"

#include <algorithm>
#include <string_view>

#include "io/file.h"
#include "io/image_decoders.h"
#include "io/image_size.h"
#include "io/mask_file.h"

namespace ebb::io {
namespace {

// a*b/255 to the nearest integer, for a and b up to 255.
uint8_t scaled(unsigned a, unsigned b) { return static_cast<uint8_t>((a * b + 127) / 255); }

uint8_t over_white(uint8_t value, uint8_t alpha) {
  return static_cast<uint8_t>(scaled(value, alpha) + (255 - alpha));
}

// BT.601 luma in 16 bits of fraction; the weights add up to 65536, so grey stays as it is.
uint8_t luma(unsigned r, unsigned g, unsigned b) {
  return static_cast<uint8_t>((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
}

void convert_pixel(const uint8_t* in, int64_t from, uint8_t* out, int64_t to) {
  const bool has_alpha = from == 2 || from == 4;
  const int64_t colours = has_alpha ? from - 1 : from;
  uint8_t c[3];
  for (int64_t i = 0; i < 3; ++i) {
    const uint8_t v = in[colours == 3 ? i : 0];
    c[i] = has_alpha ? over_white(v, in[from - 1]) : v;
  }
  if (to == 3) {
    std::copy_n(c, 3, out);
  } else {
    *out = colours == 3 ? luma(c[0], c[1], c[2]) : c[0];
  }
}

bool starts_with(std::span<const uint8_t> bytes, size_t at, std::string_view magic) {
  return bytes.size() >= at + magic.size() &&
         std::equal(magic.begin(), magic.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; });
}

struct Decoder {
  DecodedImage (*decode)(std::span<const uint8_t>, const std::string&, const ImageLimits&);
  ImageHeader (*header)(std::span<const uint8_t>, const std::string&);
};
constexpr Decoder png = {decode_png, png_header}, jpeg = {decode_jpeg, jpeg_header},
                  webp = {decode_webp, webp_header};

// Null for other formats.
const Decoder* decoder_of(std::span<const uint8_t> bytes) {
  if (starts_with(bytes, 0, "\x89PNG\r\n\x1a\n")) return &png;
  if (starts_with(bytes, 0, "\xff\xd8\xff")) return &jpeg;
  if (starts_with(bytes, 0, "RIFF") && starts_with(bytes, 8, "WEBP")) return &webp;
  return nullptr;
}

const Decoder& known_decoder_of(std::span<const uint8_t> bytes, const std::string& name) {
  const Decoder* out = decoder_of(bytes);
  require(out != nullptr, "image: must be a PNG, JPEG or WebP file (", bytes.size(), " bytes)  ",
          name);
  return *out;
}

}  // namespace

void check_image_size(int64_t height, int64_t width, const std::string& name,
                      const ImageLimits& limits) {
  require(height > 0 && width > 0 && height <= limits.side && width <= limits.side &&
              height * width <= limits.pixels,
          "image: must have 1 to ", limits.side, " pixels a side and at most ", limits.pixels,
          " in all (", width, "x", height, ")  ", name);
}

ImageMetadata metadata_of(std::span<const uint8_t> bytes, const std::string& name) {
  return decoder_of(bytes) == &jpeg ? jpeg_metadata(bytes, name) : webp_metadata(bytes, name);
}

bool is_png(std::span<const uint8_t> bytes) { return decoder_of(bytes) == &png; }

bool looks_like_image(std::span<const uint8_t> bytes) { return decoder_of(bytes) != nullptr; }

Tensor convert_channels(const Tensor& image, int64_t to) {
  const Shape& s = image.shape();
  require(
      image.dtype() == DType::u8 && s.rank() == 3 && s[2] >= 1 && s[2] <= 4 && (to == 1 || to == 3),
      "image: cannot become ", to, " channels  ", image.type());
  const int64_t from = s[2];
  if (from == to) return image;
  Tensor out(DType::u8, {s[0], s[1], to});
  const uint8_t* in = image.span<uint8_t>().data();
  uint8_t* o = out.span<uint8_t>().data();
  for (int64_t i = 0; i < s[0] * s[1]; ++i) convert_pixel(in + i * from, from, o + i * to, to);
  return out;
}

namespace {

// Upright, in sRGB, with all channels of the file.
Tensor native_image(std::span<const uint8_t> bytes, const std::string& name,
                    const ImageLimits& limits, ImageNotes* notes) {
  const auto [pixels, metadata] = known_decoder_of(bytes, name).decode(bytes, name, limits);
  ImageNotes found;
  const int orientation =
      metadata.exif.empty() ? 1 : exif_orientation(metadata.exif, found.orientation);
  Tensor native = upright(to_srgb(pixels, metadata, found.colour), orientation);
  if (notes) *notes = found;
  return native;
}

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

Tensor decode_image(std::span<const uint8_t> bytes, const std::string& name, int64_t channels,
                    const ImageLimits& limits, ImageNotes* notes) {
  require(channels == 0 || channels == 1 || channels == 3,
          "image: channels must be 0 (as in the file), 1 or 3 (", channels, ")  ", name);
  const Tensor native = native_image(bytes, name, limits, notes);
  return convert_channels(native, channels ? channels : native.shape()[2] < 3 ? 1 : 3);
}

Shape image_size(std::span<const uint8_t> bytes, const std::string& name,
                 const ImageLimits& limits) {
  const ImageHeader header = known_decoder_of(bytes, name).header(bytes, name);
  check_image_size(header.height, header.width, name, limits);
  std::string problem;
  if (!header.exif.empty() && exif_orientation(header.exif, problem) >= first_transposed)
    return {header.width, header.height};
  return {header.height, header.width};
}

Tensor decode_with_alpha(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits) {
  return native_image(bytes, name, limits, nullptr);
}

Tensor read_image(const std::string& path, int64_t channels, const ImageLimits& limits,
                  ImageNotes* notes) {
  const std::string bytes = read_whole_file(path, "image", limits.file);
  return decode_image(bytes_of(bytes), path, channels, limits, notes);
}

Tensor decode_mask(std::span<const uint8_t> bytes, const std::string& name,
                   const ImageLimits& limits) {
  const Tensor native = native_image(bytes, name, limits, nullptr);
  const int64_t channels = native.shape()[2];
  if (channels % 2 == 1) return convert_channels(native, 1);
  for (auto v = native.span<uint8_t>(); !v.empty(); v = v.subspan(static_cast<size_t>(channels))) {
    uint8_t& alpha = v[static_cast<size_t>(channels - 1)];
    for (size_t c = 0; c + 1 < static_cast<size_t>(channels); ++c) v[c] = scaled(v[c], alpha);
    alpha = 255;
  }
  return convert_channels(native, 1);
}

Tensor read_mask(const std::string& path, const ImageLimits& limits) {
  const std::string bytes = read_whole_file(path, "image", limits.file);
  return decode_mask(bytes_of(bytes), path, limits);
}

void write_png(const std::string& path, const Tensor& image,
               const std::map<std::string, std::string>& text) {
  const std::vector<uint8_t> bytes = encode_png(image, text);
  AtomicFile file(path, "image");
  file.write(bytes);
  file.commit();
}

std::map<std::string, std::string> read_png_text(const std::string& path) {
  const std::string bytes = read_whole_file(path, "image", ImageLimits{}.file);
  return png_text({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path);
}

Shape grid_shape(const Shape& image, int64_t count, int64_t columns, int64_t padding) {
  columns = std::min(columns, count);
  const int64_t rows = (count + columns - 1) / columns;
  return {rows * image[0] + (rows + 1) * padding, columns * image[1] + (columns + 1) * padding};
}

Tensor image_grid(const std::vector<Tensor>& images, int64_t columns, int64_t padding) {
  require(!images.empty() && columns > 0 && padding >= 0,
          "image_grid: needs images, at least one column and no negative padding (", images.size(),
          " images, ", columns, " columns, padding ", padding, ")");
  const Type& type = images.front().type();
  require(type.dtype == DType::u8 && type.shape.rank() == 3,
          "image_grid: images must be u8[H,W,C]  ", type);
  const int64_t count = static_cast<int64_t>(images.size());
  const int64_t h = type.shape[0], w = type.shape[1], c = type.shape[2];
  const Shape whole = grid_shape(type.shape, count, columns, padding);
  columns = std::min(columns, count);
  Tensor out(DType::u8, {whole[0], whole[1], c});
  uint8_t* o = out.span<uint8_t>().data();
  const int64_t stride = out.shape()[1] * c;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor& image = images[static_cast<size_t>(i)];
    require(image.type() == type, "image_grid: images must be alike  ", type, " and ",
            image.type());
    const uint8_t* in = image.span<uint8_t>().data();
    const int64_t y0 = padding + i / columns * (h + padding);
    const int64_t x0 = padding + i % columns * (w + padding);
    for (int64_t y = 0; y < h; ++y)
      std::copy_n(in + y * w * c, w * c, o + (y0 + y) * stride + x0 * c);
  }
  return out;
}

}  // namespace ebb::io
