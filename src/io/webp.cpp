// WebP through libwebp; still pictures only.
#include <webp/decode.h>

#include "io/image_decoders.h"

namespace ebb::io {

Tensor decode_webp(std::span<const uint8_t> bytes, const std::string& name,
                   const ImageLimits& limits) {
  WebPBitstreamFeatures features;
  const auto status = WebPGetFeatures(bytes.data(), bytes.size(), &features);
  require(status == VP8_STATUS_OK, "image: broken WebP (status ", static_cast<int>(status), ")  ",
          name);
  require(!features.has_animation, "image: WebP must be a still picture  ", name);
  check_image_size(features.height, features.width, name, limits);
  const int64_t channels = features.has_alpha ? 4 : 3;
  Tensor image(DType::u8, {features.height, features.width, channels});
  const auto decode = features.has_alpha ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  const uint8_t* done =
      decode(bytes.data(), bytes.size(), image.span<uint8_t>().data(),
             static_cast<size_t>(image.bytes()), static_cast<int>(features.width * channels));
  require(done != nullptr, "image: broken WebP (cut short or damaged)  ", name);
  return image;
}

}  // namespace ebb::io
