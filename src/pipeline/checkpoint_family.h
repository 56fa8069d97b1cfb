// The family of a checkpoint's components, some of which may be missing.
#pragma once

#include <string>
#include <vector>

#include "models/family.h"

namespace ebb {

// Channels of a state of each of the text encoders.
std::vector<int64_t> text_widths(const std::vector<Component>& components);

// By the denoiser, or else by the text encoders.
const Family& family_in(const std::vector<Component>& components);

// What each component is for the family if it is one of its text encoders, else null.
std::vector<const FamilyText*> texts_in(const Family& family,
                                        const std::vector<Component>& components);

// "CLIP-L and CLIP-G (768 and 1280 channels)": what a network of the family reads that has so many
// channels of text.
std::string wanted_texts(const Family& family, int64_t channels);
// "CLIP-L"; "a text encoder of 64 channels" of one that is not published.
std::string text_encoder_title(int64_t width);
// Those that the denoiser lacks among the components, by their titles.
std::vector<std::string> missing_texts(const Component& denoiser,
                                       const std::vector<Component>& components);

}  // namespace ebb
