// Requests as clients of each protocol send them, which hostile ones are changed from.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/comfy_graph.h"

namespace ebb::testing {

struct FormPart {
  std::string name, file, bytes;  // file: its name; "": it is a field
};

struct ValidRequest {
  std::string method, target;
  nlohmann::json body;  // null: none
  std::vector<FormPart> form = {};
  std::string bytes = {};  // a body that is a picture
};

// What pictures of requests are: small ones, as bytes and in base64.
struct SmallPicture {
  std::string bytes, base64;
};

inline std::vector<nlohmann::json> valid_graphs() {
  using nlohmann::json;
  const std::string model = "box.safetensors";
  json lora = comfy_graph(model);
  lora["11"] = comfy_node("LoraLoader", {{"lora_name", "x.safetensors"},
                                         {"strength_model", 1},
                                         {"strength_clip", 0.5},
                                         {"model", comfy_link("4")},
                                         {"clip", comfy_link("4", 1)}});
  lora["3"]["inputs"]["model"] = comfy_link("11");
  json twice = comfy_graph(model);
  twice["12"] = comfy_node("LatentUpscale", {{"samples", comfy_link("3")},
                                             {"upscale_method", "bilinear"},
                                             {"width", 128},
                                             {"height", 96},
                                             {"crop", "disabled"}});
  twice["13"] = twice["3"];
  twice["13"]["inputs"].update({{"latent_image", comfy_link("12")}, {"denoise", 0.5}});
  twice["8"]["inputs"]["samples"] = comfy_link("13");
  json inpaint = comfy_edit_graph(model, "a.png");
  inpaint["5"] = comfy_node("VAEEncodeForInpaint", {{"pixels", comfy_link("10")},
                                                    {"vae", comfy_link("4", 2)},
                                                    {"mask", comfy_link("10", 1)},
                                                    {"grow_mask_by", 6}});
  json late = comfy_graph(model);
  late["14"] =
      comfy_node("CLIPSetLastLayer", {{"clip", comfy_link("4", 1)}, {"stop_at_clip_layer", -2}});
  late["6"]["inputs"]["clip"] = late["7"]["inputs"]["clip"] = comfy_link("14");
  json steps = late["3"]["inputs"];
  steps.erase("seed"), steps.erase("denoise");
  steps.update({{"add_noise", "enable"},
                {"noise_seed", 7},
                {"start_at_step", 0},
                {"end_at_step", 10000},
                {"return_with_leftover_noise", "disable"}});
  late["3"] = comfy_node("KSamplerAdvanced", steps);
  late["9"]["class_type"] = "PreviewImage";
  return {comfy_graph(model), comfy_edit_graph(model, "a.png"), lora, twice, inpaint, late};
}

inline std::vector<ValidRequest> valid_prompts() {
  std::vector<ValidRequest> out;
  for (const auto& graph : valid_graphs())
    out.push_back({"POST", "/prompt", {{"prompt", graph}, {"client_id", "me"}}});
  return out;
}

inline std::vector<ValidRequest> valid_of_a1111(const SmallPicture& p) {
  const nlohmann::json text = {{"prompt", "a (fox:1.2), [red|blue]"},
                               {"negative_prompt", "dog"},
                               {"steps", 2},
                               {"width", 64},
                               {"height", 64},
                               {"cfg_scale", 7},
                               {"seed", 1},
                               {"sampler_name", "DPM++ 2M"},
                               {"scheduler", "Karras"},
                               {"batch_size", 2},
                               {"n_iter", 1},
                               {"styles", {"oil", "twice"}},
                               {"override_settings", {{"CLIP_stop_at_last_layers", 2}}}};
  nlohmann::json hires = text, image = text, control = text;
  hires.update({{"enable_hr", true},
                {"hr_scale", 2},
                {"hr_upscaler", "Latent"},
                {"hr_second_pass_steps", 1},
                {"denoising_strength", 0.5}});
  image.update({{"init_images", {p.base64}},
                {"mask", p.base64},
                {"mask_blur", 4},
                {"inpainting_fill", 1},
                {"inpaint_full_res", true},
                {"denoising_strength", 0.6}});
  control["alwayson_scripts"]["controlnet"]["args"] = {{{"enabled", true},
                                                        {"image", {{"image", p.base64}}},
                                                        {"module", "canny"},
                                                        {"model", "x"},
                                                        {"weight", 0.8},
                                                        {"threshold_a", 100},
                                                        {"threshold_b", 200},
                                                        {"guidance_start", 0},
                                                        {"guidance_end", 0.9}}};
  const nlohmann::json larger = {
      {"image", p.base64}, {"resize_mode", 0}, {"upscaling_resize", 2}, {"upscaler_1", "Lanczos"}};
  return {{"POST", "/sdapi/v1/txt2img", text},
          {"POST", "/sdapi/v1/txt2img", hires},
          {"POST", "/sdapi/v1/img2img", image},
          {"POST", "/sdapi/v1/txt2img", control},
          {"POST", "/v1/sdapi/v1/txt2img", text},
          {"POST", "/sdapi/v1/extra-single-image", larger},
          {"POST",
           "/sdapi/v1/extra-batch-images",
           {{"imageList", {{{"data", p.base64}, {"name", "a"}}, {{"data", p.base64}}}},
            {"upscaler_1", "None"}}},
          {"POST", "/sdapi/v1/png-info", {{"image", p.base64}}},
          {"POST",
           "/controlnet/detect",
           {{"controlnet_module", "canny"}, {"controlnet_input_images", {p.base64}}}},
          {"POST", "/sdapi/v1/options", {{"samples_format", "jpg"}, {"jpeg_quality", 80}}},
          {"POST", "/internal/progress", {{"id_task", "t"}, {"id_live_preview", 0}}},
          {"GET", "/sdapi/v1/progress", nullptr}};
}

inline std::vector<ValidRequest> valid_of_others(const SmallPicture& p) {
  const nlohmann::json job = {{"prompt", "fox"}, {"steps", 2}, {"size", "64x64"}, {"n", 2}};
  nlohmann::json edit = job;
  edit.erase("size");
  edit.update({{"init", p.base64}, {"mask", p.base64}, {"strength", 0.5}, {"outpaint", "8,0,0,8"}});
  const std::vector<FormPart> form = {{"prompt", "", "fox"},
                                      {"size", "", "64x64"},
                                      {"n", "", "1"},
                                      {"image", "a.png", p.bytes},
                                      {"mask", "b.png", p.bytes}};
  const std::vector<FormPart> upload = {
      {"image", "a.png", p.bytes}, {"type", "", "input"}, {"overwrite", "", "true"}};
  const nlohmann::json larger = {{"kind", "upscale"}, {"init", p.base64}, {"upscale", "lanczos:2"}};
  return {{"POST", "/ebb/v1/jobs", job},
          {"POST", "/ebb/v1/jobs", edit},
          {"POST", "/ebb/v1/jobs", larger},
          {"POST", "/ebb/v1/plan", job},
          {"PATCH", "/ebb/v1/jobs/{}", {{"position", 0}}},
          {"GET", "/ebb/v1/state?since=1", nullptr},
          {"POST", "/ebb/v1/inspect", {{"image", p.base64}}},
          {"POST", "/ebb/v1/inspect", nullptr, {}, p.bytes},
          {"POST",
           "/v1/images/generations",
           {{"prompt", "fox"},
            {"size", "64x64"},
            {"quality", "low"},
            {"output_format", "jpeg"},
            {"ebb", {{"steps", 2}}}}},
          {"POST", "/v1/images/edits", nullptr, form},
          {"POST", "/v1/images/variations", nullptr, {form.begin() + 1, form.end()}},
          {"POST", "/upload/image", nullptr, upload},
          {"POST", "/upload/image", nullptr, upload},
          {"POST",
           "/sdcpp/v1/img_gen",
           {{"prompt", "fox"},
            {"width", 64},
            {"height", 64},
            {"batch_count", 1},
            {"sample_params", {{"sample_steps", 2}, {"sample_method", "euler"}}}}},
          {"POST", "/queue", {{"delete", {"x"}}, {"clear", false}}},
          {"POST", "/interrupt", {{"prompt_id", "x"}}},
          {"GET", "/history/{}", nullptr},
          {"GET", "/ebb/v1/training", nullptr},
          {"GET", "/ebb/v1/training/{}", nullptr},
          {"GET", "/ebb/v1/training/{}/picture?step=1", nullptr}};
}

}  // namespace ebb::testing
