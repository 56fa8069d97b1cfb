// WebP through libwebp; still pictures only.
#include <webp/decode.h>

#include <algorithm>
#include <cstring>

#include "io/image_decoders.h"

namespace ebb::io {
namespace {

// Of 32 bits, low byte first.
size_t number_at(std::span<const uint8_t> bytes, size_t at) {
  size_t out = 0;
  for (size_t i = 0; i < 4; ++i) out |= size_t{bytes[at + i]} << 8 * i;
  return out;
}

// The data of the first chunk of this name: RIFF chunks are a name, a size and that many bytes,
// padded to an even number.
std::vector<uint8_t> chunk(std::span<const uint8_t> bytes, const char* name) {
  constexpr size_t frame = 8, first = 12;
  for (size_t at = first; at <= bytes.size() && bytes.size() - at >= frame;) {
    const size_t size = std::min(number_at(bytes, at + 4), bytes.size() - at - frame);
    const uint8_t* data = bytes.data() + at + frame;
    if (std::memcmp(bytes.data() + at, name, 4) == 0) return {data, data + size};
    at += frame + size + size % 2;
  }
  return {};
}

ImageMetadata metadata_in(std::span<const uint8_t> bytes) {
  ImageMetadata out;
  out.exif = chunk(bytes, "EXIF");
  out.icc = chunk(bytes, "ICCP");
  return out;
}

WebPBitstreamFeatures features_of(std::span<const uint8_t> bytes, const std::string& name) {
  WebPBitstreamFeatures features;
  const auto status = WebPGetFeatures(bytes.data(), bytes.size(), &features);
  require(status == VP8_STATUS_OK, "image: broken WebP (status ", static_cast<int>(status), ")  ",
          name);
  require(!features.has_animation, "image: WebP must be a still picture  ", name);
  return features;
}

}  // namespace

ImageMetadata webp_metadata(std::span<const uint8_t> bytes, const std::string& name) {
  features_of(bytes, name);
  constexpr size_t frame = 8;  // in front of the bytes that are counted
  require(bytes.size() >= frame + number_at(bytes, 4), "image: broken WebP (cut short)  ", name);
  return metadata_in(bytes);
}

ImageHeader webp_header(std::span<const uint8_t> bytes, const std::string& name) {
  const WebPBitstreamFeatures features = features_of(bytes, name);
  return {features.height, features.width, chunk(bytes, "EXIF")};
}

DecodedImage decode_webp(std::span<const uint8_t> bytes, const std::string& name,
                         const ImageLimits& limits) {
  const WebPBitstreamFeatures features = features_of(bytes, name);
  check_image_size(features.height, features.width, name, limits);
  const int64_t channels = features.has_alpha ? 4 : 3;
  Tensor image(DType::u8, {features.height, features.width, channels});
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  const uint8_t* done =
      decode(bytes.data(), bytes.size(), image.span<uint8_t>().data(),
             static_cast<size_t>(image.bytes()), static_cast<int>(features.width * channels));
  require(done != nullptr, "image: broken WebP (cut short or damaged)  ", name);
  return {image, metadata_in(bytes)};
}

}  // namespace ebb::io
