// The flags of `ebb generate`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.h"
#include "apps/cli/control_flags.h"
#include "apps/cli/gpus.h"
#include "apps/cli/input_files.h"
#include "apps/cli/mode_flags.h"
#include "base/text_list.h"
#include "io/picture_file.h"
#include "pipeline/open_choices.h"
#include "pipeline/request.h"

namespace ebb::cli {

// Of a field of GenerateOptions: its help, or another where it means more here than in other
// commands.
std::string_view help_of_generate(std::string_view field, std::string_view help);

struct GenerateFlags {
  std::string model, prompt, negative, out = "generated.png", size = "auto", vae, text_encoder,
                                       embedding_dir, lora_dir, variant;
  bool ema = false, overwrite = false;
  TextList lora;
  std::string prompt_syntax = "auto", like, config, memory = "auto", format = "png", preview,
              preview_decoder, gpus;
  int64_t n = 1, first_image = 0, clip_skip = 0, quality = io::default_quality;
  int64_t only = -1;    // of the request's pictures; -1: all
  HashTexts made_with;  // of the files of --like
  GenerateOptions generate = usual_text_to_image();
  ModeFlags modes;
  ControlFlags control;
  CommonOptions common;
  FieldTexts diffusion;
  void fields(auto&& f) {
    f("model", model,
      "a checkpoint (.safetensors, .ckpt, .pt), or a folder of diffusers; else the small one that "
      "comes with ebb, whose file says --guidance 3");
    f("variant", variant, "of a folder's files that are there in several: fp16");
    f("ema", ema, "the denoiser's moving averages, where the checkpoint has both");
    f("prompt", prompt, "what the picture shows");
    f("negative", negative, "what it does not show");
    f("n", n, "number of images");
    f("first_image", first_image,
      "number of the first image, for its noise: with 4, image 4 of a run that has more");
    f("size", size, "of the images in pixels, N or WIDTHxHEIGHT; auto: the model's");
    f("out", out,
      "a .png, .jpg or .webp file for one picture or a grid; .safetensors or .npy for the latents; "
      "else a folder");
    f("vae", vae, "another autoencoder: a file, or a folder of diffusers that has one");
    f("text_encoder", text_encoder,
      "text encoders, which win over the model's: a file, or a folder of diffusers that has them");
    f("embedding_dir", embedding_dir, "a folder of textual inversion files, which prompts name");
    f("lora", lora,
      "a LoRA or one of its relatives, FILE[:strength[:text strength]][:lbw=1,0,...]; many: again, "
      "or parted by ;");
    f("lora_dir", lora_dir, "a folder of LoRAs, which prompts name: <lora:name:0.8>");
    f("clip_skip", clip_skip, "the text encoders' layer, from the last; 0: the model's own");
    f("prompt_syntax", prompt_syntax,
      "a1111, comfyui or diffusers; auto: of the dialect, or a1111");
    modes.fields(f);
    control.fields(f);
    generate.fields([&](std::string_view name, auto& member, std::string_view help) {
      f(name, member, help_of_generate(name, help));
    });
  }
  // Beside those that say how a picture is made: how it is kept, and where settings come from.
  void other_fields(auto&& f) {
    f("preview", preview,
      "a small picture of the run as it goes on, FILE[:k] or terminal[:k]: every k steps");
    f("preview_decoder", preview_decoder,
      "with --preview: a small autoencoder (TAESD) that makes it; else a linear map does");
    f("format", format, "of the files in a folder");
    f("quality", quality, "of JPEG and WebP, 1 to 100; a WebP of 100 is lossless");
    f("like", like, "a picture whose settings are taken: one by ebb is made again");
    f("memory", memory,
      "of each device, with the driver's, to keep within: 5GB, 800MiB; auto: what is free");
    f("gpus", gpus, gpus_help);
    f("overwrite", overwrite, overwrite_help);
    f("config", config, "a JSON file with any of these settings; flags come before it");
  }
  void choices(auto&& f) {
    f("format", format, {"png", "jpg", "webp"});
    modes.choices(f);
    control.choices(f);
    generate.choices(f);
  }
  std::vector<Field> others() {
    std::vector<Field> out;
    other_fields([&](std::string_view name, auto& member, std::string_view help) {
      out.push_back({std::string(name), FieldRef(&member), std::string(help)});
    });
    return out;
  }
  // Without what has no effect on pictures; `with_quality`: those of files of JPEG and WebP.
  std::vector<Field> settings(bool with_quality) {
    std::vector<Field> out = fields_of(*this);
    std::erase_if(out, [](const Field& f) { return f.name == "out"; });
    for (Field& f : others())
      if (with_quality && f.name == "quality") out.push_back(std::move(f));
    return out;
  }
};

// What decides how pictures look. Throws Error for texts that name files in another form.
InputFiles input_files(const GenerateFlags& o);
// Throws Error for files that are not there, and where --out or --preview is one of them or both
// are the same. Asked before any is read.
void check_inputs(const GenerateFlags& o);

}  // namespace ebb::cli
