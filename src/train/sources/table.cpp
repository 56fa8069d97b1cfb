#include "train/captioned.h"

#define X(name)                              \
  namespace ebb::train::sources {            \
  const ebb::train::CaptionedSource& name(); \
  }
#include "ebb/gen/caption_sources.inc"
#undef X

namespace ebb::train {

const std::vector<const CaptionedSource*>& captioned_sources() {
  static const std::vector<const CaptionedSource*> all = {
#define X(name) &sources::name(),
#include "ebb/gen/caption_sources.inc"
#undef X
  };
  return all;
}

}  // namespace ebb::train
