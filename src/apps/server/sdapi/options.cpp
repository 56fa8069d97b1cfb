// A1111's options as settings of a job, and units of its ControlNet.
#include <algorithm>

#include "apps/server/base64.h"
#include "apps/server/sdapi/request.h"
#include "base/names.h"

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
  const int64_t number = mode->is_number() ? mode->get<int64_t>() : -1;
  if (number == 0 || text == "balanced") return "balanced";
  if (number == 1 || text == "my prompt is more important") return "prompt";
  if (number == 2 || text == "controlnet is more important") return "control";
  fail_field("control_mode", "is not one of A1111's");
}

bool stretches(const Json* mode) {
  if (!mode) return false;
  if (mode->is_number()) return mode->get<int64_t>() == 0;
  const std::string text = mode->is_string() ? small_letters(mode->get<std::string>()) : "";
  if (text == "just resize") return true;
  if (text == "crop and resize" || text == "scale to fit (inner fit)") return false;
  fail_field("resize_mode", "'resize and fill' is not there");
}

std::optional<std::string> image_of(JsonReader& r) {
  const Json* image = r.any("image");
  if (!image) image = r.any("input_image");
  if (image && image->is_object() && image->contains("image")) image = &image->at("image");
  if (!image || !image->is_string() || image->empty()) return {};
  return image->get<std::string>();
}

}  // namespace

Json options_of(Service& service, const Json& override_settings) {
  Json out = service.options().all();
  for (const auto& [name, value] : override_settings.items())
    if (!value.is_null()) out[name] = value;
  return out;
}

void set_options(SettingsBuilder& to, const Json& options, Service& service) {
  if (const std::string model = text_in(options, "sd_model_checkpoint"); !model.empty())
    to.set("model", model, "sd_model_checkpoint");
  const std::string vae = text_in(options, "sd_vae");
  if (!vae.empty() && !same_name(vae, "Automatic") && !same_name(vae, "None"))
    to.set("vae", vae, "sd_vae");
  if (options.contains("forge_additional_modules"))
    set_modules(to, options["forge_additional_modules"], service);
  JsonReader r(options);
  if (const auto skip = r.integer("CLIP_stop_at_last_layers", 0, 64); skip && *skip > 1)
    to.set("clip_skip", *skip, "CLIP_stop_at_last_layers");
  if (const auto delta = r.integer("eta_noise_seed_delta", 0, int64_t{1} << 53);
      delta && *delta != 0)
    to.set("ensd", *delta, "eta_noise_seed_delta");
  if (r.truth("img2img_fix_steps").value_or(false) && to.has("init")) to.set("exact_steps", true);
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
}

void set_controls(SettingsBuilder& to, const Json& units, const std::string& init) {
  if (!units.is_array()) return;
  for (const Json& unit : units) {
    if (!unit.is_object()) continue;
    JsonReader r(unit);
    const std::string model = r.text("model").value_or("None");
    if (!r.truth("enabled").value_or(true) || same_name(model, "None")) continue;
    std::string module = small_letters(r.text("module").value_or("none"));
    if (module == "invert (from white bg & black line)") module = "invert";
    for (const std::string_view known : {"none", "canny", "invert", "threshold"})
      if (module == known) {
        auto image = image_of(r);
        if (!image && init.empty()) fail_field("controlnet", "a unit needs an image");
        const std::string own =
            image ? "" : base64({reinterpret_cast<const uint8_t*>(init.data()), init.size()});
        to.control({{"model", model.substr(0, model.rfind(" ["))},
                    {"kind", module},
                    {"image", image ? *image : own},
                    {"strength", r.number("weight").value_or(1)},
                    {"start", r.number("guidance_start").value_or(0)},
                    {"end", r.number("guidance_end").value_or(1)}});
        to.set("control_mode", mode_of(r.any("control_mode")));
        to.set("control_resize", stretches(r.any("resize_mode")) ? "stretch" : "crop");
        module.clear();
      }
    if (!module.empty()) fail_field("controlnet", "Module not available: ", printable(module));
    for (const char* mask : {"mask", "mask_image"})
      if (const Json* m = r.any(mask); m && !m->empty())
        fail_field("controlnet", "masks are not there");
  }
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
