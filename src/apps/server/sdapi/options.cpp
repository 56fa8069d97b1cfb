// A1111's options as settings of a job, and units of its ControlNet.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "apps/server/base64.h"
#include "apps/server/pictures.h"
#include "apps/server/request_limits.h"
#include "apps/server/sdapi/request.h"
#include "base/names.h"
#include "base/text.h"
#include "io/image.h"

namespace ebb::server::sdapi {
namespace {

std::string text_in(const Json& options, const char* name) {
  const auto at = options.find(name);
  return at != options.end() && at->is_string() ? at->get<std::string>() : std::string();
}

void refuse_unless_number(const Json& options, const char* name, double neutral) {
  const auto at = options.find(name);
  if (at == options.end() || !at->is_number() || at->get<double>() == neutral) return;
  fail_field(name, "must be ", neutral, ", as ebb does not have others");
}

// A VAE and text encoders, by name or by where they lie.
void set_modules(SettingsBuilder& to, const Json& modules, Service& service) {
  const char* field = "forge_additional_modules";
  if (!modules.is_array()) return;
  for (const Json& one : modules) {
    if (!one.is_string()) fail_field(field, "must be a list of texts");
    const auto name = one.get<std::string>();
    if (name.empty() || same_name(name, "Built in") || same_name(name, "Automatic")) continue;
    if (service.catalogue().lookup(FileKind::vae, name))
      to.set("vae", name, field);
    else if (to.has("text_encoder"))
      fail_field(field, "one file of text encoders is taken");
    else
      to.set("text_encoder", name, field);
  }
}

// The strengths in A1111's order are those of the modes' names.
std::string mode_of(const Json* mode) {
  if (!mode) return "balanced";
  const std::string text = mode->is_string() ? small_letters(mode->get<std::string>()) : "";
  if (*mode == 0 || text == "balanced") return "balanced";
  if (*mode == 1 || text == "my prompt is more important") return "prompt";
  if (*mode == 2 || text == "controlnet is more important") return "control";
  fail_field("control_mode", "is not one of A1111's");
}

const char* resize_of(const Json* mode) {
  if (!mode) return "crop";
  const std::string text = mode->is_string() ? small_letters(mode->get<std::string>()) : "";
  if (*mode == 0 || text == "just resize") return "stretch";
  if (*mode == 1 || text == "crop and resize" || text == "scale to fit (inner fit)") return "crop";
  if (*mode == 2 || text == "resize and fill" || text == "envelope (outer fit)") return "fill";
  fail_field("resize_mode", "is not one of ControlNet's, 0 to 2");
}

std::optional<std::string> image_of(JsonReader& r) {
  const Json* image = r.given("image");
  if (!image) image = r.given("input_image");
  if (image && image->is_object() && image->contains("image")) image = &image->at("image");
  if (!image || !image->is_string() || *image == "") return {};
  return image->get<std::string>();
}

// A unit that is used.
struct UnitPlace {
  std::string model;
  const std::string& init;  // bytes of the start picture, "" where there is not one alone
  size_t number = 0;
};

// What ebb does not have, if the unit uses it.
void refuse_others(JsonReader& r) {
  for (const char* mask : {"mask", "mask_image", "effective_region_mask"})
    if (r.given(mask)) fail_field("controlnet", "masks are not there");
  const Json* hires = r.any("hr_option");
  if (hires && *hires != "Both" && *hires != 0)
    fail_field("controlnet", "hr_option must be Both, as ebb has a unit in both passes");
  const Json* task = r.given("union_control_type");
  if (task && *task != "Unknown") fail_field("controlnet", "union_control_type must be Unknown");
}

// Of all units alike.
void set_for_all(SettingsBuilder& to, const char* name, const std::string& value) {
  if (to.has(name) && to.spec().shown[name] != value)
    fail_field("controlnet", name, " must be the same in all units (", value, " and ",
               to.spec().shown[name].get<std::string>(), ")");
  to.set(name, value);
}

// Maps by thresholds of the unit's own are made here, and are its picture then.
void set_control(const Call& call, SettingsBuilder& to, JsonReader& r, const UnitPlace& unit,
                 std::vector<std::string>& maps) {
  std::string module = small_letters(r.text("module").value_or("none"));
  if (module == "invert (from white bg & black line)") module = "invert";
  const ControlThresholds thresholds{threshold_of(r, "threshold_a", -1),
                                     threshold_of(r, "threshold_b", -1)};
  refuse_others(r);
  const std::string mode = mode_of(r.any("control_mode"));
  const char* resize = resize_of(r.any("resize_mode"));
  auto image = image_of(r);
  if (!image && unit.init.empty())
    fail_field("controlnet", "a unit needs an image, as there is not one start picture alone");
  if (!image) image = base64(unit.init);
  check_preprocessor(module, "controlnet");
  const bool makes = module == "canny" || module == "threshold";
  const bool own = makes && (thresholds.a >= 0 || thresholds.b >= 0);
  const bool tells = r.truth("save_detected_map").value_or(false);
  std::string map;
  if (own || tells)
    map = base64(io::encode_png(control_map(module, *image, "controlnet", thresholds)));
  if (own) image = map;
  if (tells) maps.push_back(std::move(map));
  to.control({{"model", unit.model.substr(0, unit.model.rfind(" ["))},
              {"kind", own ? "none" : module},
              {"image", *image},
              {"strength", r.number("weight").value_or(1)},
              {"start", r.number("guidance_start").value_or(0)},
              {"end", r.number("guidance_end").value_or(1)}});
  set_for_all(to, "control_mode", mode);
  set_for_all(to, "control_resize", resize);
  r.skip({"pixel_perfect", "low_vram", "lowvram"});
  if (makes)
    r.ignore_unless("processor_res", {-1});  // maps are made at the picture's own size
  else
    r.skip({"processor_res"});
  call.ignore(r, str("alwayson_scripts.controlnet[", unit.number, "]"));
}

}  // namespace

Json options_of(Service& service, const Json& override_settings) {
  Json out = service.options().all();
  out.erase("sd_model_checkpoint");  // current_model() knows it
  for (const auto& [name, value] : override_settings.items())
    if (!value.is_null()) out[name] = value;
  return out;
}

void set_options(const Call& call, SettingsBuilder& to, const Json& options) {
  if (const std::string model = text_in(options, "sd_model_checkpoint"); !model.empty())
    to.set("model", model, "sd_model_checkpoint");
  const std::string vae = text_in(options, "sd_vae");
  if (!vae.empty() && !same_name(vae, "Automatic") && !same_name(vae, "None"))
    to.set("vae", vae, "sd_vae");
  if (options.contains("forge_additional_modules"))
    set_modules(to, options["forge_additional_modules"], call.service);
  JsonReader r(options);
  if (const auto skip = r.integer("CLIP_stop_at_last_layers", 0, most_clip_skip); skip && *skip > 1)
    to.set("clip_skip", *skip, "CLIP_stop_at_last_layers");
  if (const auto delta = r.integer("eta_noise_seed_delta", 0, largest_seed); delta && *delta != 0)
    to.set("ensd", *delta, "eta_noise_seed_delta");
  r.truth("img2img_fix_steps");  // image to image looks at it
  refuse_unless_number(options, "inpainting_mask_weight", 1);
  refuse_unless_number(options, "initial_noise_multiplier", 1);
  refuse_unless_number(options, "comma_padding_backtrack", 20);
  if (const std::string d = text_in(options, "ddim_discretize"); !d.empty() && d != "uniform")
    fail_field("ddim_discretize", "must be uniform");
  if (const std::string h = text_in(options, "sd_hypernetwork");
      !h.empty() && !same_name(h, "None"))
    fail_field("sd_hypernetwork", "hypernetworks are not there");
  const std::string source = text_in(options, "randn_source");
  if (source == "CPU")
    to.set("noise_options", "generator=torch_cpu", "randn_source");
  else if (source == "NV")
    to.set("noise_options", "generator=nv", "randn_source");
  else if (!source.empty() && source != "GPU")
    fail_field("randn_source", "must be GPU, CPU or NV");
  for (const auto& [name, neutral] : {std::pair<const char*, Json>{"webp_lossless", false},
                                      {"live_previews_image_format", "png"}})
    if (options.contains(name) && !options[name].is_null() && options[name] != neutral)
      call.ignored->push_back(name);
}

// Clients send back all that they got, with one key changed.
void keep_options(const Call& c, const Json& asked) {
  const Json before = c.service.options().all();
  Json changes = Json::object();
  for (const auto& [name, value] : asked.items()) {
    const auto at = before.find(name);
    if (value.is_null() || (at != before.end() && *at == value)) continue;
    changes[name] = value;
  }
  changes.erase("sd_checkpoint_hash");
  if (changes.contains("sd_model_checkpoint")) {
    const Json& model = changes["sd_model_checkpoint"];
    if (model == "")
      changes.erase("sd_model_checkpoint");
    else if (!model.is_string())
      fail_field("sd_model_checkpoint", "must be a text");
    else
      changes["sd_model_checkpoint"] =
          c.service.catalogue()
              .find(FileKind::model, model.get_ref<const std::string&>(), "sd_model_checkpoint")
              .file;
  }
  if (changes.contains("samples_format")) format_of(changes["samples_format"]);
  // What a job would refuse is refused here.
  SettingsBuilder trial(c.service.source());
  set_options(c, trial, options_of(c.service, changes));
  c.service.options().set(changes);
}

int64_t threshold_of(JsonReader& r, const char* field, int64_t usual) {
  const double value = r.number(field).value_or(static_cast<double>(usual));
  if (!(value >= -1 && value <= most_threshold))
    fail_field(field, "must be from -1 to ", most_threshold);
  return static_cast<int64_t>(std::floor(value));
}

const std::vector<std::string>& preprocessors() { return control_kinds(); }

void check_preprocessor(const std::string& module, const std::string& field) {
  if (std::ranges::find(preprocessors(), module) == preprocessors().end())
    fail_field(field, "Module not available: ", printable(module), " is none of ",
               listed(preprocessors()));
}

Tensor control_map(const std::string& module, const std::string& image, const std::string& field,
                   const ControlThresholds& thresholds) {
  const Tensor pixels = decoded_picture(picture_bytes(image, field), field);
  return io::convert_channels(control_image(module, pixels, thresholds), 3);
}

std::vector<std::string> set_controls(const Call& call, SettingsBuilder& to, const Json& units,
                                      const std::string& init) {
  std::vector<std::string> maps;
  if (units.is_null()) return maps;
  if (!units.is_array()) fail_field("alwayson_scripts.controlnet.args", "must be a list");
  for (size_t i = 0; i < units.size(); ++i) {
    if (!units[i].is_object()) continue;
    JsonReader r(units[i]);
    const std::string model = r.text("model").value_or("None");
    if (r.truth("enabled").value_or(true) && !same_name(model, "None"))
      set_control(call, to, r, {.model = model, .init = init, .number = i}, maps);
  }
  size_t bytes = 0;
  for (const std::string& map : maps) bytes += map.size();
  if (bytes > most_map_bytes)
    throw HttpFault(413, "too_large",
                    str("controlnet: the maps that save_detected_map asks for have ", bytes,
                        " bytes, more than ", most_map_bytes),
                    "save_detected_map");
  return maps;
}

// ---- what the routes share --------------------------------------------------------------------

std::string timestamp(double time) {
  const auto seconds = static_cast<std::time_t>(time);
  std::tm local{};
  localtime_r(&seconds, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &local);
  return text;
}

// ---- faults -----------------------------------------------------------------------------------

Reply render_fault(const HttpFault& f, const Request& request) {
  const std::string text = f.what();
  Reply out = server::render_fault(f, request);
  const bool generates = request.path.starts_with("/v1/sdapi") && request.method == "POST";
  const bool of_guard = f.status == 401 || f.status == 403;
  if (generates && !of_guard) out.status = 500;  // its client reads no other
  Json detail = text;
  if (f.status == 422 && !f.field.empty())
    detail = Json::array({{{"loc", {"body", f.field}}, {"msg", text}, {"type", "value_error"}}});
  out.body = json_text({{"error", out.status < 500 ? "HTTPException" : "RuntimeError"},
                        {"detail", std::move(detail)},
                        {"body", ""},
                        {"errors", text},
                        {"message", text}});
  return out;
}

std::vector<Route> with_prefixes(std::vector<Route> routes) {
  std::vector<Route> out;
  for (const Route& r : routes)
    for (const char* prefix : {"", "/v1"}) {
      out.push_back(r);
      out.back().pattern = prefix + r.pattern;
    }
  return out;
}

}  // namespace ebb::server::sdapi
