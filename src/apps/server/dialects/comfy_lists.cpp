// ComfyUI's API: what there is to choose from.
#include <algorithm>

#include "apps/server/comfy/node_class.h"
#include "apps/server/comfy/prompt.h"
#include "apps/server/host_ram.h"
#include "base/version.h"

namespace ebb::server::dialects {
namespace {

void system_stats(const Call& c) {
  const HostRam ram;
  // Clients count on a device; its memory is the engine's, which plans it by job.
  const Json device = {{"name", "ebb"},       {"type", "ebb"},  {"index", 0},
                       {"vram_total", 0},     {"vram_free", 0}, {"torch_vram_total", 0},
                       {"torch_vram_free", 0}};
  c.reply({{"system",
            {{"os", "posix"},
             {"ram_total", ram.total},
             {"ram_free", ram.free},
             {"comfyui_version", "0.3.0"},  // whose routes these are
             {"python_version", str("none: ebb ", version)},
             {"pytorch_version", "none"},
             {"embedded_python", false},
             {"argv", Json::array({"ebb", "serve"})}}},
           {"devices", Json::array({device})}});
}

Json input_json(const comfy::NodeInput& in, const comfy::Choices& choices) {
  Json more = Json::object();
  if (!in.standard.is_null()) more["default"] = in.standard;
  if (in.kind == comfy::InputKind::choice)
    return Json::array({in.names(choices, in), std::move(more)});
  if (in.kind == comfy::InputKind::integer)
    more.update({{"min", static_cast<int64_t>(in.least)},
                 {"max", in.most < 1e18 ? Json(static_cast<int64_t>(in.most)) : Json(UINT64_MAX)}});
  if (in.kind == comfy::InputKind::number) more.update({{"min", in.least}, {"max", in.most}});
  if (in.kind == comfy::InputKind::text) more["multiline"] = in.name == "text";
  return Json::array({in.type, std::move(more)});
}

Json class_json(const comfy::NodeClass& n, const comfy::Choices& choices) {
  Json required = Json::object(), more = Json::object(), order = Json::object();
  order["required"] = Json::array();
  for (const comfy::NodeInput& in : n.inputs) {
    (in.required ? required : more)[in.name] = input_json(in, choices);
    order[in.required ? "required" : "optional"].push_back(in.name);
  }
  Json input = {{"required", std::move(required)}};
  if (!more.empty()) input["optional"] = std::move(more);
  return {{"input", std::move(input)},
          {"input_order", std::move(order)},
          {"output", n.outputs},
          {"output_is_list", std::vector<bool>(n.outputs.size(), false)},
          {"output_name", n.outputs},
          {"name", n.name},
          {"display_name", n.name},
          {"description", ""},
          {"python_module", "nodes"},
          {"category", n.category},
          {"output_node", !n.shows.empty()}};
}

Json classes_json(Service& s, std::string_view name) {
  const comfy::Choices choices{s.catalogue(), s.of_protocol<comfy::Uploads>()};
  Json out = Json::object();
  for (const comfy::NodeClass& n : comfy::node_classes())
    if (name.empty() || n.name == name) out[n.name] = class_json(n, choices);
  return out;
}

struct Folder {
  std::string_view name;
  FileKind kind;
};
constexpr Folder folders[] = {
    {"checkpoints", FileKind::model},
    {"loras", FileKind::lora},
    {"vae", FileKind::vae},
    {"text_encoders", FileKind::text_encoder},
    {"clip", FileKind::text_encoder},
    {"diffusion_models", FileKind::model},
    {"unet", FileKind::model},
    {"embeddings", FileKind::embedding},
    {"upscale_models", FileKind::upscaler},
    {"controlnet", FileKind::control},
};

void folder_names(const Call& c) {
  Json out = Json::array();
  for (const Folder& f : folders) out.push_back(f.name);
  c.reply(out);
}

void folder(const Call& c) {
  const auto at = std::ranges::find(folders, c.parts.at(0), &Folder::name);
  if (at == std::end(folders)) throw HttpFault(404, "not_found", "there is no such folder");
  Json out = Json::array();
  for (const CatalogueFile& f : c.service.catalogue().all(at->kind))
    if (f.fault.empty()) out.push_back(f.file);
  c.reply(out);
}

std::vector<Route> routes() {
  return comfy::with_prefixes({
      {"GET", "/system_stats", system_stats},
      {"GET", "/object_info", [](const Call& c) { c.reply(classes_json(c.service, "")); },
       On::models},
      {"GET", "/object_info/{}",
       [](const Call& c) { c.reply(classes_json(c.service, c.parts.at(0))); }, On::models},
      {"GET", "/models", folder_names},
      {"GET", "/models/{}", folder, On::models},
  });
}

}  // namespace

const Dialect& comfy_lists() {
  static const Dialect d{"comfy_lists", routes, comfy::render_fault};
  return d;
}

}  // namespace ebb::server::dialects
