#include "apps/cli/generate_request.h"

#include "apps/cli/picture_output.h"
#include "base/choices.h"
#include "pipeline/picture_dialect.h"

namespace ebb::cli {

void settle(GenerateFlags& o, const std::function<bool(std::string_view)>& given) {
  resolve(o);
  check_choices(o, [](std::string_view field) { return "generate: unknown " + flag_of(field); });
  resolve_auto({&o.generate.sampler, &o.generate.schedule, &o.generate.noise, &o.prompt_syntax});
  o.generate.steps_given = given("steps");
  const GenerateOptions usual = GenerateFlags().generate;
  const auto open = [&](std::string_view field, bool plain) {
    return o.like.empty() && !given(field) && plain;
  };
  o.generate.steps_open = open("steps", o.generate.steps == usual.steps);
  // one that only another source says yields to rules
  o.generate.guidance_open = open("guidance", o.generate.guidance == usual.guidance) ||
                             (given("rules") && !given("guidance"));
}

text::PromptSyntax syntax_of(const GenerateFlags& o) {
  if (o.prompt_syntax != "auto") return text::prompt_syntax(o.prompt_syntax);
  return picture_dialect(o.generate.dialect).syntax;
}

TextToImageRequest request_of(const GenerateFlags& o) {
  const Output output = output_of(o.out, "generate");
  TextToImageRequest out{.prompt = o.prompt,
                         .negative = o.negative,
                         .syntax = syntax_of(o),
                         .clip_skip = o.clip_skip,
                         .count = o.n,
                         .first_image = o.first_image,
                         .size = image_size(o.size, "generate"),
                         .pixels = output == Output::grid || output == Output::folder,
                         .options = o.generate,
                         .controls = control_inputs(o.control)};
  out.loras = parse_loras(o.lora.text());
  out.lora_dir = o.lora_dir;
  out.upscale = upscale_of(o.control);
  o.modes.add_to(out);
  return out;
}

CheckpointParts parts_of(const GenerateFlags& o) {
  CheckpointParts parts =
      load_parts({.model = o.model,
                  .text_encoders = o.text_encoder.empty() ? std::vector<std::string>{}
                                                          : std::vector{o.text_encoder},
                  .autoencoder = o.vae,
                  .variant = o.variant,
                  .averaged = o.ema,
                  .refiner = o.modes.refiner_file(),
                  .hires_upscaler = o.modes.upscaler_file(),
                  .image_encoder = o.control.image_encoder},
                 o.diffusion);
  parts.denoiser = with_controls(std::move(parts.denoiser), o.control);
  if (!o.control.upscale.empty()) parts.upscaler = upscaler_of(o.control);
  return parts;
}

}  // namespace ebb::cli
