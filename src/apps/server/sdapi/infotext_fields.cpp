// A text of settings as fields of a request that its body does not have.
#include <algorithm>
#include <span>

#include "apps/server/sdapi/request.h"
#include "apps/server/sides.h"
#include "pipeline/infotext.h"

namespace ebb::server::sdapi {
namespace {

struct Counterpart {
  const char *key, *field;
};
constexpr Counterpart of_all[] = {{"Steps", "steps"},
                                  {"Sampler", "sampler_name"},
                                  {"Schedule type", "scheduler"},
                                  {"CFG scale", "cfg_scale"},
                                  {"Seed", "seed"},
                                  {"Variation seed", "subseed"},
                                  {"Variation seed strength", "subseed_strength"},
                                  {"Denoising strength", "denoising_strength"},
                                  {"Clip skip", "clip_skip"},
                                  {"Eta", "eta"},
                                  {"Sigma churn", "s_churn"},
                                  {"Sigma tmin", "s_tmin"},
                                  {"Sigma tmax", "s_tmax"},
                                  {"Sigma noise", "s_noise"},
                                  {"Refiner", "refiner_checkpoint"},
                                  {"Refiner switch at", "refiner_switch_at"}};
constexpr Counterpart of_txt2img[] = {
    {"Hires upscale", "hr_scale"},        {"Hires steps", "hr_second_pass_steps"},
    {"Hires upscaler", "hr_upscaler"},    {"Hires checkpoint", "hr_checkpoint_name"},
    {"Hires sampler", "hr_sampler_name"}, {"Hires schedule type", "hr_scheduler"},
    {"Hires prompt", "hr_prompt"},        {"Hires negative prompt", "hr_negative_prompt"},
    {"Hires CFG Scale", "hr_cfg"}};
constexpr Counterpart of_img2img[] = {{"Image CFG scale", "image_cfg_scale"},
                                      {"Mask blur", "mask_blur"},
                                      {"Masked area padding", "inpaint_full_res_padding"}};

class Filling {
 public:
  Filling(Json& body, const Infotext& text) : body_(body), text_(text) {}

  bool has(std::string_view key) const { return !text_.value(key).empty(); }
  void add(const char* field, const Json& value) {
    if (!body_.contains(field) || body_[field].is_null()) body_[field] = value;
  }
  void add_all(std::span<const Counterpart> all) {
    for (const Counterpart& c : all)
      if (has(c.key)) add(c.field, text_.value(c.key));
  }
  // "WIDTHxHEIGHT".
  void add_sides(std::string_view key, const char* width, const char* height) {
    if (const auto sides = sides_of(text_.value(key)))
      add(width, sides->first), add(height, sides->second);
  }

 private:
  Json& body_;
  const Infotext& text_;
};

void add_second_pass(Filling& f) {
  if (!f.has("Hires upscale") && !f.has("Hires resize")) return;
  f.add("enable_hr", true);
  f.add_all(of_txt2img);
  f.add_sides("Hires resize", "hr_resize_x", "hr_resize_y");
}

// What the text does not say of a mask is what the web UI had.
void add_mask(Filling& f, const Infotext& t) {
  f.add_all(of_img2img);
  constexpr const char* keys[] = {"Mask blur", "Masked content", "Mask mode", "Inpaint area",
                                  "Masked area padding"};
  if (std::ranges::none_of(keys, [&](const char* key) { return f.has(key); })) return;
  constexpr std::string_view contents[] = {"fill", "original", "latent noise", "latent nothing"};
  const std::string content = f.has("Masked content") ? t.value("Masked content") : "original";
  const auto* at = std::ranges::find(contents, content);
  if (at != std::end(contents)) f.add("inpainting_fill", at - std::begin(contents));
  f.add("inpainting_mask_invert", t.value("Mask mode") == "Inpaint not masked" ? 1 : 0);
  f.add("inpaint_full_res", t.value("Inpaint area") == "Only masked");
  if (!f.has("Mask blur")) f.add("mask_blur", 0);
}

// What the web UI has as options. A model that is not there is none.
void add_options(Json& body, const Infotext& t, const Catalogue& catalogue) {
  Json found = Json::object();
  for (const auto& [key, option] :
       {Counterpart{"ENSD", "eta_noise_seed_delta"}, Counterpart{"RNG", "randn_source"}})
    if (const std::string value = t.value(key); !value.empty()) found[option] = value;
  for (const char* key : {"Model hash", "Model"})
    if (const auto f = catalogue.lookup(FileKind::model, t.value(key));
        f && f->fault.empty() && !found.contains("sd_model_checkpoint"))
      found["sd_model_checkpoint"] = f->file;
  Json& options = body["override_settings"];
  if (options.is_null()) options = Json::object();
  if (!options.is_object()) return;  // which is told of where it is read
  for (const auto& [name, value] : found.items())
    if (!options.contains(name)) options[name] = value;
}

}  // namespace

void add_infotext(Json& body, const std::string& text, Task task, const Catalogue& catalogue) {
  const Infotext t = parse_infotext(text);
  Filling f(body, t);
  if (!t.prompt.empty()) f.add("prompt", t.prompt);
  if (!t.negative.empty()) f.add("negative_prompt", t.negative);
  f.add_all(of_all);
  f.add_sides("Size", "width", "height");
  f.add_sides("Seed resize from", "seed_resize_from_w", "seed_resize_from_h");
  if (t.value("Tiling") == "True") f.add("tiling", true);
  if (task == Task::txt2img)
    add_second_pass(f);
  else
    add_mask(f, t);
  add_options(body, t, catalogue);
}

}  // namespace ebb::server::sdapi
