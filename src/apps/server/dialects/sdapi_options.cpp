// A1111's API: options.
#include <algorithm>

#include "apps/server/sdapi/request.h"
#include "base/names.h"

namespace ebb::server::dialects {
namespace {

void get_options(const Call& c) {
  Json out = c.service.options().all();
  const auto model = current_model(c.service.source());
  out["sd_model_checkpoint"] = model ? model->title() : "";
  out["sd_checkpoint_hash"] = model ? model->sha256 : "";
  c.reply(out);
}

// Clients send back all that they got, with one key changed.
void post_options(const Call& c, JsonReader& r) {
  const Json before = c.service.options().all();
  Json changes = Json::object();
  for (const auto& [name, value] : r.object().items()) {
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
  if (changes.contains("samples_format")) sdapi::format_of(changes["samples_format"]);
  // What a job would refuse is refused here.
  SettingsBuilder trial(c.service.source());
  sdapi::set_options(c, trial, sdapi::options_of(c.service, changes));
  c.service.options().set(changes);
  c.reply(Json());
}

void unload(const Call& c) {
  c.service.unload();
  c.reply(Json::object());
}

void reload(const Call& c) { c.reply(Json::object()); }

std::vector<Route> routes() {
  return sdapi::with_prefixes({
      {"GET", "/sdapi/v1/options", get_options, On::models},
      {"POST", "/sdapi/v1/options", with_json(post_options), On::models},
      {"POST", "/sdapi/v1/unload-checkpoint", unload},
      {"POST", "/sdapi/v1/reload-checkpoint", reload},
  });
}

}  // namespace

const Dialect& sdapi_options() {
  static const Dialect d{"sdapi_options", routes, sdapi::render_fault};
  return d;
}

}  // namespace ebb::server::dialects
