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

void post_options(const Call& c, JsonReader& r) {
  sdapi::keep_options(c, r.object());
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
