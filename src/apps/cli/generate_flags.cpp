#include "apps/cli/generate_flags.h"

#include "base/names.h"
#include "pipeline/hires.h"

namespace ebb::cli {

std::string_view help_of_generate(std::string_view field, std::string_view help) {
  if (field == "sampler")
    return "the sampler (ebb samplers lists them), by any program's name, which may imply a "
           "schedule; auto: dpmpp_2m, or in the dialect diffusers that of the folder's scheduler; "
           "lcm "
           "where that is of a latent consistency model";
  if (field == "guidance")
    return "classifier-free guidance scale; 1: off; 0: the negative prompt alone; below 0: away "
           "from the prompt; networks of distilled guidance read it";
  if (field == "batch") return "images at a time; 0: as many as fit into memory, at most 64";
  return help;
}

InputFiles input_files(const GenerateFlags& o) {
  InputFiles out;
  out.add("model", o.model);
  out.add("vae", o.vae);
  out.add("text_encoder", o.text_encoder);
  out.add("lora", o.lora.texts);
  out.add("init", o.modes.init);
  out.add("mask", o.modes.mask);
  out.add("hires", o.modes.upscaler_file());
  out.add("refiner", o.modes.refiner_file());
  out.add("refiner_lora", o.modes.refiner_lora.texts);
  std::vector<std::string> images;
  for (const std::string& text : o.control.control.texts)
    images.push_back(parse_control(text).file);
  out.add("control", images);
  out.add("control_model", o.control.control_model.texts);
  out.add("image_encoder", o.control.image_encoder);
  out.add("upscale", o.control.upscale);
  return out;
}

void check_inputs(const GenerateFlags& o) {
  InputFiles all = input_files(o);
  all.add("like", o.like);
  all.add("config", o.config);
  check_not_input(o.out, all, "generate");
  if (!o.preview.empty()) all.add("preview_decoder", o.preview_decoder);
  all.add("embedding_dir", o.embedding_dir);
  for (const InputFile& f : all.all())
    if (f.name == "hires" && f.path.empty())
      fail_unknown("generate: --hires: no file and no upscaler", f.text, hires_upscalers());
  check_there(all, "generate");
}

}  // namespace ebb::cli
