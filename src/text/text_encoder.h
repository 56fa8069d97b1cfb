// Published text encoders: what files, people and programs know of each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ebb::text {

struct TextEncoder {
  std::string_view name;   // of presets and of tensors in files of vectors: clip_l, clip_h, ...
  std::string_view title;  // for people: CLIP-L
  int64_t width;           // of its token embeddings
  int32_t pad;             // the id behind the end
};

std::span<const TextEncoder> text_encoders();
// By name. Throws Error.
const TextEncoder& text_encoder(std::string_view name);
// By width; null if none has it.
const TextEncoder* find_text_encoder(int64_t width);

}  // namespace ebb::text
