#include "apps/server/sdapi/request.h"

#include <algorithm>
#include <cmath>

#include "apps/server/client_names.h"
#include "apps/server/lora_list.h"
#include "apps/server/pictures.h"
#include "apps/server/random_text.h"
#include "apps/server/request_limits.h"
#include "apps/server/sdapi/menus.h"
#include "base/names.h"
#include "pipeline/hires.h"

namespace ebb::server::sdapi {
namespace {

// A request that is read.
struct Reading {
  Service& service;
  SettingsBuilder& to;
  JsonReader& r;
  const Json& options;
  Task task;
  const Call& call;
  ImageSize size = {};
  std::string init = {};  // bytes, where there is one alone
};

// ---- prompts, seeds, size
// Without <lora:...> tags.
std::string without_tags(std::string prompt) {
  for (size_t at = 0; (at = prompt.find("<lora:", at)) != prompt.npos;) {
    const size_t end = prompt.find('>', at);
    if (end == prompt.npos) break;
    prompt.erase(at, end + 1 - at);
  }
  return prompt;
}

// One after another, each around what those before made.
void add_styles(Reading& q, std::string& prompt, std::string& negative) {
  const Json* names = q.r.array("styles");
  if (!names) return;
  if (names->size() > most_entries)
    fail_field("styles", "has more than ", most_entries, " entries (got ", names->size(), ")");
  for (const Json& one : *names) {
    if (!one.is_string()) fail_field("styles", "must be a list of names");
    const auto& name = one.get_ref<const std::string&>();
    if (name.empty() || name == "None") continue;
    const std::vector<Style>& all = q.service.given().styles;
    const Style* style = find_style(all, name);
    if (!style) {
      std::vector<std::string> known;
      for (const Style& s : all) known.push_back(s.name);
      const std::string shown = printable(name.substr(0, longest_name));
      fail_field("styles", "there is no style '", shown, "'", suggestion(shown, known),
                 all.empty() ? ": ebb serve has --styles FILE for them" : "");
    }
    try {
      prompt = with_style(prompt, style->prompt, most_text);
      negative = with_style(negative, style->negative, most_text);
    } catch (const Error& e) {
      throw HttpFault(413, "too_large", str("styles: '", printable(name), "': ", e.what()),
                      "styles");
    }
  }
}

void set_prompts(Reading& q) {
  std::string prompt = q.r.text("prompt").value_or(""),
              negative = q.r.text("negative_prompt").value_or("");
  add_styles(q, prompt, negative);
  if (q.r.truth("disable_extra_networks").value_or(false)) prompt = without_tags(prompt);
  q.to.set("prompt", prompt);
  q.to.set("negative", negative, "negative_prompt");
}

void set_seeds(Reading& q) {
  const auto drawn = [] { return std::stoll(random_text(7), nullptr, 16); };
  const int64_t seed = q.r.integer("seed", -1, largest_seed).value_or(-1);
  q.to.set("seed", seed < 0 ? drawn() : seed);
  const double strength = q.r.number("subseed_strength").value_or(0);
  const int64_t subseed = q.r.integer("subseed", -1, largest_seed).value_or(-1);
  if (strength < 0 || strength > 1) fail_field("subseed_strength", "must be from 0 to 1");
  if (strength > 0)
    q.to.set("variation", str(subseed < 0 ? drawn() : subseed, ':', number_text(strength)),
             "subseed_strength");
  const int64_t h = q.r.integer("seed_resize_from_h", -1, most_side).value_or(-1),
                w = q.r.integer("seed_resize_from_w", -1, most_side).value_or(-1);
  if (h > 0 && w > 0) q.to.set("seed_resize", str(w, 'x', h), "seed_resize_from_w");
}

// As A1111 does, latents have whole numbers: sizes are rounded down.
void set_size(Reading& q) {
  q.size = q.to.set_size(q.r.integer("width", size_multiple, most_side),
                         q.r.integer("height", size_multiple, most_side));
  const int64_t batch = q.r.integer("batch_size", 1, most_batch).value_or(1),
                count = q.r.integer("n_iter", 1, most_rounds).value_or(1);
  q.to.set("n", batch * count, "n_iter");
  q.to.set("batch", batch, "batch_size");
}

// ---- samplers
void set_sampler(Reading& q) {
  const std::string index = q.r.text("sampler_index").value_or("Euler");
  std::string name = q.r.text("sampler_name").value_or(index);
  const MenuChoice choice = menu_choice(name.empty() ? "Euler" : name);
  name = choice.sampler;
  q.to.set("sampler", name, "sampler_name");
  std::string schedule = q.r.text("scheduler").value_or("");
  if (schedule.empty()) schedule = choice.schedule;
  if (!schedule.empty() && !same_name(schedule, "Automatic"))
    q.to.set("schedule", schedule, "scheduler");
  q.to.set("steps", q.r.integer("steps", 1, most_steps).value_or(50));
  q.to.set("guidance", q.r.number("cfg_scale").value_or(q.to.defaults().guidance), "cfg_scale");
  q.r.skip({"distilled_cfg_scale"});  // of families that ebb has none of
  std::string options;
  for (const char* o : {"eta", "s_churn", "s_tmin", "s_tmax", "s_noise"}) {
    const auto value = q.r.number(o);
    if (!value || !takes_option(name, o) || (*value == 0 && std::string_view(o) == "s_tmax"))
      continue;
    options += str(options.empty() ? "" : ",", o, '=', number_text(*value));
  }
  if (!options.empty()) q.to.set("options", options, "eta");
}

// ---- what changes the picture and is not there
void refuse_unless(bool neutral, const char* field) {
  if (!neutral) fail_field(field, "ebb does not have this");
}

void check_neutral(Reading& q) {
  JsonReader& r = q.r;
  refuse_unless(!r.truth("restore_faces").value_or(false), "restore_faces");
  for (const char* f : {"s_min_uncond", "token_merging_ratio", "token_merging_ratio_hr",
                        "shifted_timestep", "flow_shift"})
    refuse_unless(r.number(f).value_or(0) == 0, f);
  for (const char* f : {"ref_images", "extra_images"})
    if (const Json* list = r.array(f)) refuse_unless(list->empty(), f);
  for (const char* f : {"controlnet_lllite", "ip_adapter", "vae_interposer", "latent_interposer"})
    refuse_unless(!r.given(f), f);
  refuse_unless(!r.truth("send_as_refimg").value_or(false), "send_as_refimg");
  const std::string cache = r.text("cache_mode").value_or("");
  refuse_unless(cache.empty() || cache == "none" || cache == "disabled", "cache_mode");
  r.skip(
      {"distilled_guidance", "comments", "do_not_save_samples", "do_not_save_grid", "script_args"});
  if (const auto script = r.text("script_name"); script && !script->empty())
    throw HttpFault(422, "not_found", str("Script '", printable(*script), "' not found"),
                    "script_name");
  const bool x = r.truth("circular_x").value_or(false), y = r.truth("circular_y").value_or(false);
  if (r.truth("tiling").value_or(false) || (x && y))
    q.to.set("tiling", "both");
  else if (x || y)
    q.to.set("tiling", x ? "x" : "y", "circular_x");
}

// ---- LoRAs, refiner
void set_loras(Reading& q) {
  Json loras = lora_setting(q.r.array("lora"));
  const Json *paths = q.r.any("lora_paths"), *alphas = q.r.any("lora_alphas");
  if (paths) {
    const Json all = paths->is_array() ? *paths : Json::array({*paths});
    const Json weights = !alphas              ? Json::array()
                         : alphas->is_array() ? *alphas
                                              : Json::array({*alphas});
    for (size_t i = 0; i < all.size(); ++i) {
      if (!all[i].is_string() || (i < weights.size() && !weights[i].is_number()))
        fail_field("lora_paths", "must be a list of texts, lora_alphas one of numbers");
      loras.push_back(str(all[i].get<std::string>(), ':',
                          number_text(i < weights.size() ? weights[i].get<double>() : 1)));
    }
  }
  if (!loras.empty()) q.to.set("lora", loras, paths ? "lora_paths" : "lora");
  const std::string refiner = q.r.text("refiner_checkpoint").value_or("");
  const double share = q.r.number("refiner_switch_at").value_or(0.8);
  if (!refiner.empty() && !same_name(refiner, "None"))
    q.to.set("refiner", str(refiner, ':', number_text(share)), "refiner_checkpoint");
}

// ---- hires fix
double hires_scale(Reading& q) {
  const int64_t x = q.r.integer("hr_resize_x", 0, most_side).value_or(0),
                y = q.r.integer("hr_resize_y", 0, most_side).value_or(0);
  if (x == 0 && y == 0) {
    const double scale = q.r.number("hr_scale").value_or(2);
    if (scale < 1 || scale > 8) fail_field("hr_scale", "must be from 1 to 8");
    return scale;
  }
  const double by_x = static_cast<double>(x) / static_cast<double>(q.size.width),
               by_y = static_cast<double>(y) / static_cast<double>(q.size.height);
  if (x > 0 && y > 0 && std::abs(by_x - by_y) > 1e-9)
    fail_field("hr_resize_x",
               "another ratio than width and height would be cropped, which ebb "
               "does not do");
  return x > 0 ? by_x : by_y;
}

void set_hires(Reading& q) {
  JsonReader& r = q.r;
  const bool on = r.truth("enable_hr").value_or(false);
  const std::string prompt = r.text("hr_prompt").value_or(""),
                    negative = r.text("hr_negative_prompt").value_or(""),
                    sampler = r.text("hr_sampler_name").value_or(""),
                    schedule = r.text("hr_scheduler").value_or(""),
                    model = r.text("hr_checkpoint_name").value_or("");
  const std::string upscaler = r.text("hr_upscaler").value_or("Latent");
  const int64_t steps = r.integer("hr_second_pass_steps", 0, most_steps).value_or(0);
  const double strength = r.number("denoising_strength").value_or(0.75),
               guidance = r.number("hr_cfg").value_or(1), scale = on ? hires_scale(q) : 2;
  const int64_t first = r.integer("firstphase_width", 0, most_side).value_or(0) +
                        r.integer("firstphase_height", 0, most_side).value_or(0);
  r.skip({"hr_scale", "hr_resize_x", "hr_resize_y", "hr_distilled_cfg", "hr_additional_modules"});
  if (!on || scale == 1) return;  // A1111 makes no second pass of the same size either
  r.ignore_unless("hr_additional_modules", {Json::array(), Json::array({"Use same choices"})});
  const auto same = [](const std::string& text) {
    return text.empty() || small_letters(text).starts_with("use same");
  };
  refuse_unless(prompt.empty() || prompt == r.text("prompt").value_or(""), "hr_prompt");
  refuse_unless(negative.empty() || negative == r.text("negative_prompt").value_or(""),
                "hr_negative_prompt");
  refuse_unless(same(sampler), "hr_sampler_name");
  refuse_unless(same(schedule), "hr_scheduler");
  refuse_unless(same(model), "hr_checkpoint_name");
  refuse_unless(guidance == 1 || guidance == q.to.spec().flags.generate.guidance, "hr_cfg");
  refuse_unless(first == 0, "firstphase_width");
  if (strength < 0 || strength > 1) fail_field("denoising_strength", "must be from 0 to 1");
  q.to.set("hires", hires_text(scale, upscaler, steps, strength), "hr_upscaler");
}

// ---- image to image
void set_mask(Reading& q) {
  JsonReader& r = q.r;
  const auto mask = r.text("mask");
  const bool round = r.truth("mask_round").value_or(true);
  const auto blur = r.integer("mask_blur", 0, 512), blur_x = r.integer("mask_blur_x", 0, 512),
             blur_y = r.integer("mask_blur_y", 0, 512);
  const int64_t fill = r.integer("inpainting_fill", 0, 3).value_or(0),
                padding = r.integer("inpaint_full_res_padding", 0, 512).value_or(0),
                invert = r.integer("inpainting_mask_invert", 0, 1).value_or(0);
  const bool only_masked = r.truth("inpaint_full_res").value_or(true);
  refuse_unless(!r.given("latent_mask"), "latent_mask");
  if (!mask || mask->empty()) return;
  if (!blur && blur_x.value_or(4) != blur_y.value_or(4))
    fail_field("mask_blur_x", "must be mask_blur_y");
  q.to.picture("mask", decoded_mask(picture_bytes(*mask, "mask"),
                                    round ? MaskRule::a1111_rounded : MaskRule::a1111, "mask"));
  q.to.set("mask_blur", blur ? *blur : blur_x.value_or(4));
  constexpr const char* contents[] = {"fill", "original", "noise", "nothing"};
  q.to.set("masked_content", contents[fill], "inpainting_fill");
  if (invert == 1) q.to.set("mask_invert", true);
  if (!only_masked) return;
  q.to.set("only_masked", true);
  q.to.set("mask_padding", padding);
}

void set_init(Reading& q) {
  JsonReader& r = q.r;
  const Json* images = r.array("init_images");
  if (!images || images->empty() || images->at(0).is_null() || images->at(0) == "")
    throw HttpFault(404, "not_found", "Init image not found", "init_images");
  const auto batch = static_cast<size_t>(r.integer("batch_size", 1, most_batch).value_or(1));
  if (images->size() != 1 && images->size() != batch)
    fail_field("init_images", "one image is taken, or as many as batch_size, which is ", batch,
               " (got ", images->size(), ")");
  for (const Json& image : *images) {
    if (!image.is_string()) fail_field("init_images", "must be a list of texts");
    const std::string bytes = picture_bytes(image.get_ref<const std::string&>(), "init_images");
    const Tensor pixels = decoded_picture(bytes, "init_images");
    if (q.to.has("init"))
      q.to.another_init(pixels);
    else
      q.to.picture("init", pixels);
    q.init = images->size() == 1 ? bytes : "";  // of several none is that of control networks
  }
  const double strength = r.number("denoising_strength").value_or(0.75);
  if (strength < 0 || strength > 1) fail_field("denoising_strength", "must be from 0 to 1");
  q.to.set("strength", strength, "denoising_strength");
  if (const auto image = r.number("image_cfg_scale"); image && *image > 0)
    q.to.set("image_guidance", *image, "image_cfg_scale");
  refuse_unless(r.number("initial_noise_multiplier").value_or(1) == 1, "initial_noise_multiplier");
  r.skip({"include_init_images"});
  JsonReader options(q.options);
  if (options.truth("img2img_fix_steps").value_or(false)) q.to.set("exact_steps", true);
  set_mask(q);
  const int64_t mode = r.integer("resize_mode", 0, 3).value_or(0);
  if (q.to.spec().flags.modes.only_masked) {  // the region has the size's ratio
    if (mode > 0) q.call.ignored->emplace_back("resize_mode");
    return;
  }
  constexpr const char* fits[] = {"stretch", "crop", "fill", "latent"};
  if (mode == 3 && q.to.has("mask"))
    fail_field("resize_mode", "3 resizes latents, and there is no mask of these");
  q.to.set("fit", fits[mode], "resize_mode");
}

std::vector<std::string> set_scripts(Reading& q) {
  std::vector<std::string> maps;
  const Json* scripts = q.r.object("alwayson_scripts");
  if (!scripts) return maps;
  for (const auto& [name, value] : scripts->items()) {
    if (small_letters(name) != "controlnet")
      throw HttpFault(422, "not_found", str("always on script ", printable(name), " not found"),
                      "alwayson_scripts");
    if (value.is_object() && value.contains("args"))
      maps = set_controls(q.call, q.to, value["args"], q.init);
  }
  return maps;
}

void set_task(Reading& q) {
  JobSpec& spec = q.to.spec();
  spec.keeps = q.r.truth("save_images").value_or(false);
  spec.format = format_of(q.options["samples_format"]);
  const Json& quality = q.options["jpeg_quality"];
  if (quality.is_number())
    spec.quality = static_cast<int>(std::clamp(quality.get<double>(), 1.0, 100.0));
  spec.id = q.r.text("force_task_id").value_or("");
  if (!is_name(spec.id, longest_id))
    fail_field("force_task_id", "must be at most ", longest_id, " printable signs");
  if (spec.id.empty())
    spec.id = str("task(", q.task == Task::txt2img ? "txt2img" : "img2img", '-',
                  random_text(7, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"), ')');
}

// What was asked for, and what became of it where that was left open, or said in another form.
void echo(Reading& q, const Json& body, Asked& out) {
  for (const auto& [name, value] : body.items())
    if (!value.is_null()) out.echoed[name] = value;
  const GenerateOptions& g = out.spec.flags.generate;
  out.echoed.update({{"width", q.size.width},
                     {"height", q.size.height},
                     {"cfg_scale", g.guidance},
                     {"steps", g.steps},
                     {"seed", uint64_t{g.seed}}});
  if (const auto strength = q.r.number("denoising_strength"))
    out.echoed["denoising_strength"] = *strength;
}

}  // namespace

io::PictureFormat format_of(const Json& name) {
  const std::string text = name.is_string() ? small_letters(name.get<std::string>()) : "png";
  const auto format = io::picture_format("." + text);
  if (!format) fail_field("samples_format", "must be png, jpg or webp");
  return *format;
}

Asked read_request(const Call& call, Task task) {
  Service& service = call.service;
  Json body = read_json(call.request->body);
  if (body.contains("infotext") && body["infotext"].is_string())
    add_infotext(body, body["infotext"].get<std::string>(), task, service.catalogue());
  JsonReader r(body);
  r.skip({"infotext"});
  const Json* changes = r.object("override_settings");
  const Json options = options_of(service, changes ? *changes : Json::object());
  SettingsBuilder to(service.source());
  Reading q{.service = service, .to = to, .r = r, .options = options, .task = task, .call = call};
  to.set("dialect", "a1111");
  set_options(call, to, options);
  if (const auto skip = r.integer("clip_skip", 0, most_clip_skip);
      skip && *skip > 0 && !(changes && changes->contains("CLIP_stop_at_last_layers")))
    to.set("clip_skip", *skip > 1 ? *skip : 0);
  set_prompts(q), set_seeds(q), set_size(q), set_sampler(q), check_neutral(q), set_loras(q);
  if (task == Task::txt2img)
    set_hires(q);
  else
    set_init(q);
  r.skip({"denoising_strength"});
  auto maps = set_scripts(q);
  set_task(q);
  Asked out{.spec = to.finish(), .echoed = default_fields(task), .maps = std::move(maps)};
  out.sends_images = r.truth("send_images").value_or(true);
  if (!r.truth("override_settings_restore_afterwards").value_or(true) && changes)
    out.kept_options = *changes;
  call.ignore(r);
  echo(q, body, out);
  if (task == Task::img2img && !r.truth("include_init_images").value_or(false))
    out.echoed["init_images"] = out.echoed["mask"] = nullptr;
  return out;
}

}  // namespace ebb::server::sdapi
