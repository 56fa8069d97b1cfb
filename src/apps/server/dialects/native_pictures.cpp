// The native protocol: the gallery, the catalogue, what a picture says.
#include <algorithm>

#include "apps/cli/settings_file.h"
#include "apps/server/byte_span.h"
#include "apps/server/fault.h"
#include "apps/server/inspect.h"
#include "apps/server/pictures.h"
#include "apps/server/service.h"
#include "base/names.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"
#include "io/image.h"
#include "pipeline/hires.h"
#include "pipeline/infotext.h"

namespace ebb::server::dialects {
namespace {

const Headers picture_headers = {{"Cache-Control", "private, max-age=31536000, immutable"},
                                 {"Content-Security-Policy", "default-src 'none'"}};

[[noreturn]] void no_picture() {
  throw HttpFault(404, "not_found", "there is no such picture, or no longer");
}

Json picture_json(Service& s, const std::string& id) {
  const auto facts = s.store().facts(id);
  if (!facts) return {};
  const std::string url = "/ebb/v1/images/" + id;
  const Infotext text = parse_infotext(facts->parameters);
  return {{"id", id},
          {"url", url},
          {"thumb", url + "/thumb"},
          {"meta", url + "/meta"},
          {"created", id.substr(0, 15)},
          {"prompt", text.prompt},
          {"negative", text.negative},
          {"width", facts->width},
          {"height", facts->height}};
}

// All words are in the prompt.
bool is_found(const Json& picture, const std::string& words) {
  const std::string prompt = small_letters(picture["prompt"].get<std::string>());
  std::string_view left = words;
  while (!left.empty()) {
    const size_t end = std::min(left.find(' '), left.size());
    if (prompt.find(left.substr(0, end)) == prompt.npos) return false;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return true;
}

void list_images(const Call& c) {
  constexpr size_t most = 200, most_read = 5000;
  size_t limit = 50;
  if (const std::string_view l = c.request->parameter("limit"); !l.empty()) {
    const bool number = l.size() <= 4 && l.find_first_not_of("0123456789") == l.npos;
    limit = number ? std::stoul(std::string(l)) : 0;
    if (limit < 1 || limit > most)
      fail_field("limit", "must be a whole number from 1 to ", most, " (got '", printable(l), "')");
  }
  const std::string words = small_letters(std::string(c.request->parameter("q")));
  const auto ids =
      c.service.store().list(c.request->parameter("before"), words.empty() ? limit + 1 : most_read);
  Json images = Json::array();
  bool more = false;
  for (const std::string& id : ids) {
    if ((more = images.size() == limit)) break;
    Json one = picture_json(c.service, id);
    if (!one.is_null() && is_found(one, words)) images.push_back(std::move(one));
  }
  c.reply({{"images", std::move(images)}, {"more", more}});
}

void get_image(const Call& c) {
  const auto p = c.service.store().find(c.parts.at(0));
  auto bytes = c.service.store().bytes(c.parts.at(0));
  if (!p || !bytes) no_picture();
  c.reply(Reply{.type = std::string(type_of(p->format)),
                .body = std::move(*bytes),
                .headers = picture_headers});
}

void get_thumb(const Call& c) {
  auto bytes = c.service.store().thumb(c.parts.at(0));
  if (!bytes) no_picture();
  c.reply(Reply{.type = "image/jpeg", .body = std::move(*bytes), .headers = picture_headers});
}

void get_meta(const Call& c) {
  const auto facts = c.service.store().facts(c.parts.at(0));
  if (!facts) no_picture();
  std::map<std::string, std::string> text;
  if (!facts->parameters.empty()) text["parameters"] = facts->parameters;
  if (!facts->settings.empty()) text[std::string(cli::settings_keyword)] = facts->settings;
  Json out = {{"id", c.parts.at(0)}, {"width", facts->width}, {"height", facts->height}};
  if (!text.empty()) out.update(inspected(text));
  c.reply(out);
}

void delete_image(const Call& c) {
  const std::string& id = c.parts.at(0);
  if (!c.service.store().remove(id)) no_picture();
  c.service.queue().tell("deleted", {{"ids", {id}}});
  c.reply(Json::object());
}

Json files_json(const Catalogue& all, FileKind kind) {
  Json out = Json::array();
  for (const CatalogueFile& f : all.all(kind)) {
    if (!f.fault.empty()) continue;
    Json one = {{"name", f.name},
                {"title", f.title()},
                {"hash", f.sha256.empty() ? Json() : Json(f.hash())},
                {"family", f.family}};
    if (f.scale > 0) one["scale"] = f.scale;
    if (kind == FileKind::model) {
      const ModelDefaults& d = f.defaults;
      one["defaults"] = {{"size", d.size}, {"steps", d.steps}, {"guidance", d.guidance}};
      one["unused"] = d.unused;
    }
    out.push_back(std::move(one));
  }
  return out;
}

template <class All>
Json names_json(const All& all) {
  Json out = Json::array();
  for (const auto* one : all)
    out.push_back({{"name", one->name}, {"label", one->name}, {"help", one->help}});
  return out;
}

void catalogue(const Call& c) {
  const Catalogue& all = c.service.catalogue();
  Json faults = Json::array();
  for (const CatalogueFile& f : all.all())
    if (!f.fault.empty()) faults.push_back({{"file", f.file}, {"error", all.for_clients(f.fault)}});
  c.reply({{"models", files_json(all, FileKind::model)},
           {"vaes", files_json(all, FileKind::vae)},
           {"text_encoders", files_json(all, FileKind::text_encoder)},
           {"loras", files_json(all, FileKind::lora)},
           {"embeddings", files_json(all, FileKind::embedding)},
           {"upscalers", files_json(all, FileKind::upscaler)},
           {"controls", files_json(all, FileKind::control)},
           {"faults", std::move(faults)},
           {"scanning", all.scanning()},
           {"samplers", names_json(all_samplers())},
           {"schedules", names_json(all_schedules())},
           {"hires_upscalers", hires_upscalers()},
           {"settings", settings_description()}});
}

void rescan(const Call& c) {
  c.service.catalogue().rescan();
  c.reply(Json::object(), 202);
}

void inspect(const Call& c) {
  std::string bytes = c.request->body;
  if (!c.request->header("content-type").starts_with("image/")) {
    const Json body = read_json(c.request->body);
    JsonReader r(body);
    if (const auto text = r.text("text")) {
      Json out = inspected({{"parameters", *text}});
      return c.reply(out);
    }
    const auto image = r.text("image");
    if (!image) fail_field("image", "is missing");
    bytes = picture_bytes(*image, "image", &c.service.store());
  }
  const Tensor pixels = decoded_picture(bytes, "image");
  const auto text = io::picture_text(byte_span(bytes), "image");
  Json out = {{"width", pixels.shape()[1]},
              {"height", pixels.shape()[0]},
              {"parameters", ""},
              {"settings", Json::object()},
              {"notes", Json::array()}};
  try {
    out.update(inspected(text));
  } catch (const HttpFault& f) {
    out["notes"].push_back(f.what());
  }
  c.reply(out);
}

std::vector<Route> routes() {
  return {
      {"GET", "/ebb/v1/images", list_images},
      {"GET", "/ebb/v1/images/{}", get_image},
      {"GET", "/ebb/v1/images/{}/thumb", get_thumb},
      {"GET", "/ebb/v1/images/{}/meta", get_meta},
      {"DELETE", "/ebb/v1/images/{}", delete_image},
      {"GET", "/ebb/v1/catalogue", catalogue},
      {"POST", "/ebb/v1/catalogue/rescan", rescan},
      {"POST",
       "/ebb/v1/inspect",
       inspect,
       On::codec,
       large_body,
       {.accepts = "application/json,image/*"}},
  };
}

}  // namespace

const Dialect& native_pictures() {
  static const Dialect d{"native_pictures", routes, render_fault};
  return d;
}

}  // namespace ebb::server::dialects
