#include "text/text_encoder.h"

#include <algorithm>

#include "base/names.h"

namespace ebb::text {
namespace {

constexpr TextEncoder encoders[] = {{"clip_l", "CLIP-L", 768, 49407},
                                    {"clip_h", "CLIP-H", 1024, 0},
                                    {"clip_g", "CLIP-G", 1280, 0},
                                    {"t5xxl", "T5-XXL", 4096, 0}};

}  // namespace

std::span<const TextEncoder> text_encoders() { return encoders; }

const TextEncoder& text_encoder(std::string_view name) {
  return find_known("prompt: unknown text encoder", name, encoders, &TextEncoder::name);
}

const TextEncoder* find_text_encoder(int64_t width) {
  const auto it = std::ranges::find(encoders, width, &TextEncoder::width);
  return it == std::end(encoders) ? nullptr : &*it;
}

}  // namespace ebb::text
