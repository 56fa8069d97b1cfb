#include "apps/cli/generate_flags.h"

#include <filesystem>

#include "apps/cli/picture_output.h"
#include "apps/cli/preview_output.h"
#include "base/error.h"
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
  if (field == "batch")
    return "images at a time; 0: as many as fit into memory, at most 64, on a processor 4";
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
  out.add("control_mask", o.control.control_mask.texts);
  out.add("image_encoder", o.control.image_encoder);
  out.add("upscale", o.control.upscale);
  return out;
}

namespace {

// "": the terminal.
void check_preview_file(const std::string& file, const std::string& out, bool overwrite,
                        const InputFiles& inputs) {
  if (file.empty()) return;
  const std::filesystem::path path(file);
  check_not_input(file, inputs, "generate: --preview");
  require(!same_file(file, out), "generate: --preview and --out name the same file  ", file);
  require(output_of(out, "generate") != Output::folder || !is_numbered(path.filename()) ||
              !same_file(std::filesystem::absolute(path).parent_path(), out),
          "generate: --preview would overwrite a picture of the folder that --out names  ", file);
  check_replaced_picture(file, "generate: --preview", overwrite);
}

}  // namespace

void check_inputs(const GenerateFlags& o) {
  InputFiles all = input_files(o);
  all.add("like", o.like);
  all.add("config", o.config);
  check_not_input(o.out, all, "generate: --out");
  if (!o.preview.empty()) {
    all.add("preview_decoder", o.preview_decoder);
    check_preview_file(parse_preview(o.preview).file, o.out, o.overwrite, all);
  }
  all.add("embedding_dir", o.embedding_dir);
  for (const InputFile& f : all.all())
    if (f.name == "hires" && f.path.empty())
      fail_unknown("generate: --hires: no file and no upscaler", f.text, hires_upscalers());
  check_there(all, "generate");
}

}  // namespace ebb::cli
