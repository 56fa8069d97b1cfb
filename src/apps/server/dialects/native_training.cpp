// The native protocol: runs of `ebb train` in the folders of --runs. docs/server.md describes it.
#include <charconv>

#include "apps/server/fault.h"
#include "apps/server/pictures.h"
#include "apps/server/service.h"
#include "base/names.h"
#include "io/image.h"

namespace ebb::server::dialects {
namespace {

[[noreturn]] void not_there(const char* what) {
  throw HttpFault(404, "not_found", str("there is no such ", what, ", or no longer"));
}

void list(const Call& c) { c.reply(c.service.training().list()); }

void one(const Call& c) {
  const Json run = c.service.training().run(c.parts.at(0));
  if (run.is_null()) not_there("run");
  c.reply(run);
}

int64_t step_of(const Call& c) {
  const std::string_view text = c.request->parameter("step");
  int64_t out = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || out < 0)
    fail_field("step", "must be a whole number, 0 or more (got '", printable(text), "')");
  return out;
}

// Encoded again, as all pictures are that the server did not write.
void picture(const Call& c) {
  const auto bytes = c.service.training().picture(c.parts.at(0), step_of(c));
  if (!bytes) not_there("picture");
  const auto png = io::encode_png(decoded_picture(*bytes, "picture"));
  c.reply(Reply{.type = "image/png",
                .body = std::string(png.begin(), png.end()),
                .headers = {{"Cache-Control", "private, max-age=86400"},
                            {"Content-Security-Policy", "default-src 'none'"}}});
}

std::vector<Route> routes() {
  return {{"GET", "/ebb/v1/training", list, On::folder},
          {"GET", "/ebb/v1/training/{}", one, On::folder},
          {"GET", "/ebb/v1/training/{}/picture", picture, On::folder}};
}

}  // namespace

const Dialect& native_training() {
  static const Dialect d{"native_training", routes, render_fault};
  return d;
}

}  // namespace ebb::server::dialects
