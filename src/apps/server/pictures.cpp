#include "apps/server/pictures.h"

#include <algorithm>

#include "apps/server/base64.h"
#include "apps/server/byte_span.h"
#include "apps/server/fault.h"
#include "base/names.h"
#include "io/image.h"
#include "io/mask_file.h"

namespace ebb::server {
namespace {

constexpr io::ImageLimits limits{.side = 16384, .pixels = 33'500'000, .file = int64_t{64} << 20};

// What `decode` gives, or a fault that names the field.
Tensor decoded(std::string_view bytes, const std::string& field, const auto& decode) {
  if (!io::looks_like_image(byte_span(bytes)))
    throw HttpFault(400, "bad_image", str(field, ": is no PNG, JPEG or WebP picture"), field);
  try {
    return decode(byte_span(bytes));
  } catch (const HttpFault&) {
    throw;
  } catch (const Error& e) {
    throw HttpFault(400, "bad_image", e.what(), field);
  }
}

Tensor alpha_of(const Tensor& image) {
  const int64_t c = image.shape()[2];
  Tensor out(DType::u8, {image.shape()[0], image.shape()[1], 1});
  const auto in = image.span<uint8_t>();
  size_t i = static_cast<size_t>(c - 1);
  for (uint8_t& v : out.span<uint8_t>()) v = in[i], i += static_cast<size_t>(c);
  return out;
}

Tensor mask_of(std::span<const uint8_t> bytes, MaskRule rule, const std::string& field) {
  if (rule == MaskRule::white) return io::decode_mask(bytes, field, limits);
  const Tensor image = io::decode_with_alpha(bytes, field, limits);
  const bool has_alpha = image.shape()[2] % 2 == 0;
  if (!has_alpha && rule == MaskRule::transparent)
    throw HttpFault(400, "bad_image", str(field, ": has no transparent part to be generated"),
                    field);
  if (!has_alpha) return io::convert_channels(image, 1);
  Tensor alpha = alpha_of(image);
  if (rule == MaskRule::transparent) {
    for (uint8_t& v : alpha.span<uint8_t>()) v = static_cast<uint8_t>(255 - v);
    return alpha;
  }
  if (std::ranges::all_of(alpha.span<uint8_t>(), [](uint8_t v) { return v == 255; }))
    return io::convert_channels(image, 1);
  if (rule == MaskRule::a1111_rounded)
    for (uint8_t& v : alpha.span<uint8_t>()) v = v > 128 ? 255 : 0;
  return alpha;
}

}  // namespace

std::string picture_bytes(std::string_view text, const std::string& field, Store* store) {
  const auto refuse = [&](const char* why) -> HttpFault {
    return {400, "bad_image", str(field, ": ", why), field};
  };
  text = trimmed(text);
  if (store && text.starts_with("id:")) {
    const auto bytes = store->bytes(text.substr(3));
    if (!bytes) throw refuse("there is no such picture");
    return *bytes;
  }
  if (text.starts_with("data:")) {
    const size_t comma = text.substr(0, 256).find(',');
    if (comma == text.npos || !text.substr(0, comma).ends_with(";base64") ||
        !text.starts_with("data:image/"))
      throw refuse("a data: URL must be data:image/...;base64,...");
    text.remove_prefix(comma + 1);
  } else if (text.substr(0, 16).find(':') != text.npos) {
    throw refuse("must be base64 or a data: URL; other URLs are not fetched");
  }
  auto bytes = base64_decoded(text);
  if (!bytes || bytes->empty()) throw refuse("Invalid encoded image: it is no base64");
  return std::move(*bytes);
}

Tensor decoded_picture(std::string_view bytes, const std::string& field) {
  return decoded(bytes, field,
                 [&](std::span<const uint8_t> b) { return io::decode_image(b, field, 3, limits); });
}

Tensor decoded_mask(std::string_view bytes, MaskRule rule, const std::string& field) {
  return decoded(bytes, field, [&](std::span<const uint8_t> b) { return mask_of(b, rule, field); });
}

}  // namespace ebb::server
