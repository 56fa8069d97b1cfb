// Inpainting and outpainting: a run that starts from a picture and keeps a part of it.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "pipeline/init_image.h"
#include "pipeline/mask_image.h"

namespace ebb {

// What the masked part of the picture is before the run.
enum class MaskedContent : uint8_t {
  fill,      // the colours around it
  original,  // the picture's
  noise,     // latents of noise
  nothing,   // latents of 0
};
MaskedContent masked_content(std::string_view name);  // throws Error

struct MaskImage {
  Tensor picture;  // u8 [H,W,1]: what is white is generated
  bool invert = false;
  // Deviation in pixels; none: 4 as in A1111, 0 in the dialects diffusers and comfy.
  std::optional<int64_t> blur = {};
  MaskedContent content = MaskedContent::original;
  // The masked region alone is generated, at the size of the run, and put back.
  bool only_masked = false;
  int64_t padding = 32;  // pixels around that region
  bool overlay = true;   // what is not masked is the picture's, pixel by pixel
};

// The deviation of a mask's blur in a dialect.
int64_t mask_blur(const MaskImage& mask, std::string_view dialect);

// Pixels that are added to the sides of a picture and generated.
struct Outpaint {
  int64_t left = 0, right = 0, top = 0, bottom = 0;
  bool operator==(const Outpaint&) const = default;
};
// "left,right,top,bottom". Throws Error.
Outpaint parse_outpaint(std::string_view text);
// Extends the picture, by its edges, and the mask (which may be undefined: black) by white. The sum
// of the sides becomes a multiple, by pixels on the right and at the bottom. Throws Error.
void extend(InitImage& init, std::optional<MaskImage>& mask, Outpaint sides, int64_t multiple);

// The pictures of a run.
struct InpaintPictures {
  Tensor picture;  // u8 [H,W,3] of the run's size: what it starts from
  Tensor mask;     // u8 [H,W,1], of that size
  // What the result is laid over: the picture as it was, and the mask of what is generated.
  Tensor base, base_mask;
  std::optional<Region> region;  // of `base`, where the result belongs; none: all
};
InpaintPictures inpaint_pictures(const InitImage& init, const MaskImage& mask, ImageSize size,
                                 std::string_view dialect);

// Of a network that was trained to inpaint, in a pass without a mask: all of the picture is
// generated. As in A1111 the mask is 1 everywhere, beside the latents of a grey picture of that
// size, which the dialect may have as numbers.
std::shared_ptr<const RunMode> unmasked_mode(ImageSize pixels, const ResolvedRequest& r);

// Behind init_mode(picture). `extra`: channels of the network beside its latents: 5 take mask and
// masked latents, 0 none; others throw Error.
std::shared_ptr<const RunMode> inpaint_mode(const InpaintPictures& pictures, const MaskImage& mask,
                                            const ResolvedRequest& request, int64_t extra);

}  // namespace ebb
