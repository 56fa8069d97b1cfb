// The flags of `ebb generate` for runs that are more than one pass from noise, as parts of a
// request.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/unused_flags.h"
#include "base/text_list.h"
#include "pipeline/text_to_image.h"

namespace ebb::cli {

std::vector<std::string> tilings();  // the names of --tiling

struct ModeFlags {
  std::string variation, seed_resize, init, fit = "stretch", mask, masked_content = "auto",
                                            outpaint, hires, refiner, tiling = "none";
  TextList refiner_lora;
  double strength = 0.75, image_guidance = default_image_guidance;
  bool exact_steps = false, mask_invert = false, only_masked = false;
  int64_t mask_blur = -1, mask_padding = 32, ensd = 0;
  void fields(auto&& f) {
    f("variation", variation,
      "with --dialect a1111: another noise of --seed, SEED:STRENGTH, from 0 to 1, the other "
      "seed's");
    f("seed_resize", seed_resize,
      "with --dialect a1111: the noise that a picture of this size has, WIDTHxHEIGHT, in the "
      "middle");
    f("ensd", ensd,
      "with --dialect a1111: steps draw by another seed, so much larger (eta noise seed delta)");
    f("init", init, "a picture to start from, or to edit where the model was trained to do that");
    f("image_guidance", image_guidance,
      "guidance scale of the picture, of models that edit one (InstructPix2Pix); 1: off");
    f("strength", strength,
      "with --init: how much of the noise comes back, 0 to 1; the dialect says how many steps run");
    f("exact_steps", exact_steps, "with --init: all of --steps run, as A1111 has it as an option");
    f("fit", fit,
      "of --init to --size: stretch, crop the middle, fill (all of it, its edges going on around "
      "it), or latent (its latents are enlarged)");
    f("mask", mask,
      "a picture, stretched to the size of --init: what is white in it is generated; what is "
      "transparent is "
      "black");
    f("mask_invert", mask_invert, "what is black is generated");
    f("mask_blur", mask_blur,
      "softens the mask, a deviation in pixels; -1: 4, in the dialects diffusers and comfy 0");
    f("masked_content", masked_content,
      "what --mask starts from: fill (the colours around it), original, noise or nothing; auto: "
      "original, with --outpaint fill");
    f("only_masked", only_masked,
      "the masked region alone is generated, at --size, and put back into the picture");
    f("mask_padding", mask_padding, "with --only-masked: pixels around the region");
    f("outpaint", outpaint, "pixels to add to --init: left,right,top,bottom");
    f("hires", hires,
      "a second pass at a larger size, SCALE[:upscaler[:steps[:strength]]]: latent, "
      "latent-nearest, latent-nearest-exact, latent-bicubic, latent-antialiased, "
      "latent-bicubic-antialiased, lanczos or a file with a network (ESRGAN); of the steps 0: "
      "--steps");
    f("refiner", refiner,
      "a checkpoint that makes the last steps, FILE[:share]; the share of the first model is 0.8");
    f("refiner_lora", refiner_lora, "as --lora, on the refiner");
    f("tiling", tiling, "pictures that can be laid side by side without a seam");
  }
  void choices(auto&& f) {
    f("fit", fit, {"stretch", "crop", "fill", "latent"});
    f("masked_content", masked_content, {"auto", "fill", "original", "noise", "nothing"});
    f("tiling", tiling, tilings());
  }
  std::string refiner_file() const;   // of --refiner
  std::string upscaler_file() const;  // of --hires; "": it names none
  std::optional<UnusedField> unused() const;
  // Reads the pictures. Throws Error, also for flags that have no effect without others.
  void add_to(TextToImageRequest& request) const;
  // Without those that became other options (--noise-options).
  void forget_noise() { variation.clear(), seed_resize.clear(), ensd = 0; }
};

// The sides on which pictures go on at the opposite one, by the names of --tiling. Throws Error.
CircularAxes circular_axes(const std::string& tiling, std::string_view command);

}  // namespace ebb::cli
