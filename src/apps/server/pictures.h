// Pictures of requests: base64 and files in memory, within limits.
#pragma once

#include <string>
#include <string_view>

#include "apps/server/store.h"
#include "core/tensor.h"

namespace ebb::server {

// The bytes of base64, of a `data:` URL, or, where `store` is given, of "id:" and a picture of it.
// Throws HttpFault 400: for all else, other URLs among it, which are not fetched.
std::string picture_bytes(std::string_view text, const std::string& field, Store* store = nullptr);
// u8 [H,W,3]; what is transparent becomes white. Throws HttpFault 400 or 413.
Tensor decoded_picture(std::string_view bytes, const std::string& field);

enum class MaskRule : uint8_t {
  white,          // white is generated, transparent is black
  a1111,          // an alpha that is not opaque everywhere is the mask, else brightness
  a1111_rounded,  // the same, alpha being 0 or 255
  transparent,    // what is transparent is generated (OpenAI)
};
// u8 [H,W,1].
Tensor decoded_mask(std::string_view bytes, MaskRule rule, const std::string& field);

}  // namespace ebb::server
