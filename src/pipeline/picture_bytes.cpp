#include "pipeline/picture_bytes.h"

#include <algorithm>

#include "pipeline/decoder.h"
#include "pipeline/picture_dialect.h"

namespace ebb {

Tensor picture_bytes(const Tensor& images, std::string_view dialect) {
  if (!picture_dialect(dialect).cuts_bytes) return to_pixels(images);
  // Bytes that became numbers, as those of a picture that the result is laid over, stay the same.
  constexpr float slack = 1e-3f;
  Tensor out(DType::u8, images.shape());
  std::ranges::transform(images.span<float>(), out.span<uint8_t>().begin(), [](float v) {
    return static_cast<uint8_t>(std::clamp((v + 1) / 2, 0.0f, 1.0f) * 255 + slack);
  });
  return out;
}

}  // namespace ebb
