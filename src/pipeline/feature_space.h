// Feature spaces that `ebb eval --features` names.
#pragma once

#include <string>

#include "train/features.h"

namespace ebb {

// `text` begins with inception=: distances are FID and KID.
bool names_inception(std::string_view text);

// "inception=FILE", weights of the Inception network (train/inception.h), or FILE, a network file
// (train/features.h), for images [H,W,C]. Throws Error for other files, and for networks that take
// images of another shape.
train::FeatureNet open_features(const std::string& text, const Shape& image,
                                const Context& context);

}  // namespace ebb
