// Writing WebP through libwebp and, for files with metadata, libwebpmux.
#include <webp/encode.h>
#include <webp/mux.h>

#include <memory>

#include "base/error.h"
#include "io/image.h"
#include "io/image_encoders.h"

namespace ebb::io {
namespace {

static_assert(webp_side == WEBP_MAX_DIMENSION);

std::vector<uint8_t> with_exif(const WebPData& picture, std::span<const uint8_t> exif) {
  const std::unique_ptr<WebPMux, void (*)(WebPMux*)> mux(WebPMuxNew(), WebPMuxDelete);
  const WebPData text{exif.data(), exif.size()};
  constexpr int refer = 0;  // no copy
  WebPData whole{};
  const bool ok = mux && WebPMuxSetImage(mux.get(), &picture, refer) == WEBP_MUX_OK &&
                  WebPMuxSetChunk(mux.get(), "EXIF", &text, refer) == WEBP_MUX_OK &&
                  WebPMuxAssemble(mux.get(), &whole) == WEBP_MUX_OK;
  require(ok, "image: cannot put metadata into WebP (", exif.size(), " bytes)");
  std::vector<uint8_t> out(whole.bytes, whole.bytes + whole.size);
  WebPDataClear(&whole);
  return out;
}

}  // namespace

std::vector<uint8_t> encode_webp(const Tensor& image, std::span<const uint8_t> exif, int quality) {
  const Shape& s = image.shape();
  require(image.dtype() == DType::u8 && s.rank() == 3 && s[0] > 0 && s[1] > 0 &&
              s[0] <= webp_side && s[1] <= webp_side && (s[2] == 1 || s[2] == 3),
          "image: a WebP must be u8[H,W,C] with C 1 or 3 and sides of 1 to ", webp_side, "  ",
          image.type());
  Tensor colour = image;  // the format has no grey
  if (s[2] == 1) {
    colour = Tensor(DType::u8, {s[0], s[1], 3});
    uint8_t* to = colour.span<uint8_t>().data();
    for (const uint8_t v : image.span<uint8_t>())
      for (int c = 0; c < 3; ++c) *to++ = v;
  }
  const uint8_t* rgb = colour.span<uint8_t>().data();
  const auto h = static_cast<int>(s[0]), w = static_cast<int>(s[1]);
  uint8_t* bytes = nullptr;
  const size_t size = quality == 100
                          ? WebPEncodeLosslessRGB(rgb, w, h, 3 * w, &bytes)
                          : WebPEncodeRGB(rgb, w, h, 3 * w, static_cast<float>(quality), &bytes);
  const std::unique_ptr<uint8_t, void (*)(void*)> owner(bytes, WebPFree);
  require(size > 0, "image: cannot encode WebP (", w, "x", h, ")");
  if (exif.empty()) return {bytes, bytes + size};
  return with_exif({bytes, size}, exif);
}

}  // namespace ebb::io
