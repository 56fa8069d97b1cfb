// A1111's API: what there is to choose from.
#include <algorithm>

#include "apps/server/host_ram.h"
#include "apps/server/sdapi/request.h"
#include "base/names.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"
#include "pipeline/hires.h"
#include "pipeline/web_ui_menus.h"

namespace ebb::server::dialects {
namespace {

// Files are told by name: clients show them, and send the name back.
void models(const Call& c) {
  Json out = Json::array();
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::model)) {
    if (!f.fault.empty()) continue;
    out.push_back({{"title", f.title()},
                   {"model_name", f.model_name()},
                   {"hash", f.sha256.empty() ? Json() : Json(f.hash())},
                   {"sha256", f.sha256.empty() ? Json() : Json(f.sha256)},
                   {"filename", f.file},
                   {"config", nullptr}});
  }
  c.reply(out);
}

void add_files(Json& out, const Catalogue& all, FileKind kind) {
  for (const CatalogueFile& f : all.all(kind))
    if (f.fault.empty()) out.push_back({{"model_name", f.file}, {"filename", f.file}});
}

void vaes(const Call& c) {
  Json out = Json::array();
  add_files(out, c.service.catalogue(), FileKind::vae);
  c.reply(out);
}

void modules(const Call& c) {
  Json out = Json::array();
  add_files(out, c.service.catalogue(), FileKind::vae);
  add_files(out, c.service.catalogue(), FileKind::text_encoder);
  c.reply(out);
}

Json sampler_json(const std::string& name, Json aliases) {
  return {{"name", name}, {"aliases", std::move(aliases)}, {"options", Json::object()}};
}

void samplers(const Call& c) {
  Json out = Json::array();
  std::vector<const Sampler*> told;
  for (const MenuName& m : sampler_menu()) {
    const FoundSampler s = find_sampler(m.name);
    told.push_back(s.sampler);
    out.push_back(sampler_json(m.name, {m.alias, s.sampler->name}));
  }
  for (const Sampler* s : all_samplers())
    if (std::ranges::find(told, s) == told.end())
      out.push_back(sampler_json(s->name, Json::array()));
  c.reply(out);
}

void schedulers(const Call& c) {
  Json out = Json::array();
  const auto add = [&](const std::string& name, const std::string& label) {
    out.push_back({{"name", name},
                   {"label", label},
                   {"aliases", nullptr},
                   {"default_rho", nullptr},
                   {"need_inner_model", nullptr}});
  };
  for (const MenuName& m : schedule_menu()) add(m.alias, m.name);
  for (const Schedule* s : all_schedules())
    if (std::ranges::none_of(schedule_menu(),
                             [&](const MenuName& m) { return s->name == m.alias; }))
      add(s->name, s->name);
  c.reply(out);
}

void upscalers(const Call& c) {
  Json out = Json::array();
  const auto add = [&](const std::string& name, double scale) {
    out.push_back({{"name", name},
                   {"model_name", nullptr},
                   {"model_path", nullptr},
                   {"model_url", nullptr},
                   {"scale", scale}});
  };
  add("None", 4), add("Lanczos", 4), add("Nearest", 4);  // clients count on the first one
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::upscaler))
    if (f.fault.empty()) add(f.name, f.scale);
  c.reply(out);
}

void latent_modes(const Call& c) {
  Json out = Json::array();
  for (const std::string& own : hires_upscalers())
    if (own.starts_with("latent")) out.push_back({{"name", hires_menu_name(own)}});
  c.reply(out);
}

void loras(const Call& c) {
  Json out = Json::array();
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::lora))
    if (f.fault.empty())
      out.push_back({{"name", f.name.substr(f.name.rfind('/') + 1)},
                     {"alias", f.name.substr(f.name.rfind('/') + 1)},
                     {"path", f.file},
                     {"metadata", Json::object()}});
  c.reply(out);
}

void embeddings(const Call& c) {
  Json loaded = Json::object();
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::embedding))
    if (f.fault.empty())
      loaded[f.name.substr(f.name.rfind('/') + 1)] = {{"step", nullptr},
                                                      {"sd_checkpoint", nullptr},
                                                      {"sd_checkpoint_name", nullptr},
                                                      {"shape", nullptr},
                                                      {"vectors", nullptr}};
  c.reply({{"loaded", loaded}, {"skipped", Json::object()}});
}

void styles(const Call& c) {
  Json out = Json::array();
  for (const Style& s : c.service.given().styles)
    out.push_back({{"name", s.name}, {"prompt", s.prompt}, {"negative_prompt", s.negative}});
  c.reply(out);
}

void refresh(const Call& c) {
  c.service.catalogue().rescan();
  c.service.answer_behind_scan(c, [](const Call& own) { own.reply(Json()); });
}

void memory(const Call& c) {
  const HostRam ram;
  const Json pair = {{"current", 0}, {"peak", 0}};
  c.reply({{"ram", {{"free", ram.free}, {"used", ram.total - ram.free}, {"total", ram.total}}},
           {"cuda",
            {{"system", {{"free", 0}, {"used", 0}, {"total", 0}}},
             {"active", pair},
             {"allocated", pair},
             {"reserved", pair},
             {"inactive", pair},
             {"events", {{"retries", 0}, {"oom", 0}}}}}});
}

// ---- ControlNet
void control_models(const Call& c) {
  Json out = Json::array();
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::control))
    if (f.fault.empty())
      out.push_back(f.sha256.empty() ? f.name : f.name + " [" + f.sha256.substr(0, 8) + "]");
  c.reply({{"model_list", out}});
}

void control_types(const Call& c) {
  Json names = Json::array({"None"});
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::control))
    if (f.fault.empty()) names.push_back(f.name);
  c.reply({{"control_types",
            {{"All",
              {{"module_list", sdapi::preprocessors()},
               {"model_list", names},
               {"default_option", "none"},
               {"default_model", "None"}}}}}});
}

Handler constant(Json value) {
  return [value = std::move(value)](const Call& c) { c.reply(value); };
}

Handler missing(const char* sentence) {
  return [sentence](const Call&) { throw HttpFault(404, "not_found", sentence); };
}

std::vector<Route> routes() {
  const Json list = Json::array();
  std::vector<Route> out = {
      {"GET", "/sdapi/v1/sd-models", models, On::models},
      {"GET", "/sdapi/v1/sd-vae", vaes, On::models},
      {"GET", "/sdapi/v1/sd-modules", modules, On::models},
      {"GET", "/sdapi/v1/samplers", samplers},
      {"GET", "/sdapi/v1/schedulers", schedulers},
      {"GET", "/sdapi/v1/upscalers", upscalers, On::models},
      {"GET", "/sdapi/v1/latent-upscale-modes", latent_modes},
      {"GET", "/sdapi/v1/loras", loras, On::models},
      {"GET", "/sdapi/v1/embeddings", embeddings, On::models},
      {"GET", "/sdapi/v1/prompt-styles", styles},
      {"GET", "/sdapi/v1/memory", memory},
      {"GET", "/sdapi/v1/cmd-flags", constant({{"api", true}})},
      {"GET", "/sdapi/v1/scripts",
       constant({{"txt2img", {"controlnet"}}, {"img2img", {"controlnet"}}})},
      {"POST", "/sdapi/v1/interrogate", missing("Model not found: ebb has no captioner")},
      {"GET", "/controlnet/version", constant({{"version", 2}})},
      {"GET", "/controlnet/settings", constant({{"control_net_unit_count", 3}})},
      {"GET", "/controlnet/model_list", control_models, On::models},
      {"GET", "/controlnet/module_list",
       constant({{"module_list", sdapi::preprocessors()}, {"module_detail", Json::object()}})},
      {"GET", "/controlnet/control_types", control_types, On::models},
  };
  for (const char* path :
       {"script-info", "extensions", "hypernetworks", "face-restorers", "realesrgan-models"})
    out.push_back({"GET", str("/sdapi/v1/", path), constant(list)});
  for (const char* path : {"refresh-loras", "refresh-checkpoints", "refresh-vae",
                           "refresh-embeddings", "refresh-vae-and-text-encoders"})
    out.push_back({"POST", str("/sdapi/v1/", path), refresh});
  return sdapi::with_prefixes(std::move(out));
}

}  // namespace

const Dialect& sdapi_lists() {
  static const Dialect d{"sdapi_lists", routes, sdapi::render_fault};
  return d;
}

}  // namespace ebb::server::dialects
