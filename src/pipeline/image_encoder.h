// ImageEncoder: CLIP's vision encoder on a device, and the pixels that it reads.
#pragma once

#include <map>
#include <string>

#include "pipeline/component.h"
#include "pipeline/text_stage.h"

namespace ebb {

// A file, or a folder as diffusers lays one out (image_encoder/). Throws Error that says what it
// has instead.
LoadedComponent load_image_encoder(const std::string& path, const std::string& variant = "");

// f32 [1,side,side,3] of a picture u8 [H,W,3], as transformers' CLIPImageProcessor makes it: the
// shorter side becomes `side` by a bicubic filter, the middle is cut out, and the channels are
// normalised by CLIP's means and deviations.
Tensor clip_pixels(const Tensor& picture, int64_t side);

class ImageEncoder {
 public:
  // Compiles nothing until it is asked for an output.
  ImageEncoder(LoadedComponent encoder, DType dtype, Context context);
  // The output f32 of the entry point `encode`, of a picture u8 [H,W,3]; not defined: of pixels
  // that are 0, which stand for no picture. Throws Error where the result is not finite.
  Tensor encode(const Tensor& picture, const std::string& output);
  // What encode() gives, of zeros; compiles its plan and runs nothing.
  Tensor sketch(const std::string& output);
  PlanNeeds needs(const std::string& output) { return plan(output).needs(); }  // compiles it

 private:
  Plan& plan(const std::string& output);

  LoadedComponent encoder_;
  DType dtype_;
  Context context_;
  std::map<std::string, Plan> plans_;  // by output
};

}  // namespace ebb
