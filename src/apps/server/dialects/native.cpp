// The native protocol: jobs. docs/server.md describes it.
#include <algorithm>

#include "apps/server/pictures.h"
#include "apps/server/request_limits.h"
#include "apps/server/service.h"
#include "base/fields.h"
#include "base/names.h"

namespace ebb::server::dialects {
namespace {

JobView job_of(const Call& c) {
  const auto v = c.service.queue().find(c.parts.at(0));
  if (!v) throw HttpFault(404, "not_found", "there is no such job, or no longer");
  return *v;
}

// Of "NAME[:scale]".
void set_upscaler(UpscaleSettings& u, const std::string& text, Service& s) {
  const size_t colon = text.rfind(':');
  std::string name = text;
  if (colon != text.npos && !s.catalogue().lookup(FileKind::upscaler, text)) {
    name = text.substr(0, colon);
    try {
      u.scale = parse_number(text.substr(colon + 1), "upscale");
    } catch (const Error& e) {
      fail_field("upscale", e.what());
    }
  } else if (const auto f = s.catalogue().lookup(FileKind::upscaler, name); f && f->scale > 0) {
    u.scale = f->scale;
  }
  const bool own = same_name(name, "lanczos") || same_name(name, "nearest");
  u.upscaler =
      own ? small_letters(name) : s.catalogue().find(FileKind::upscaler, name, "upscale").path;
}

// A larger picture of one.
JobSpec upscale_spec(SettingsBuilder& builder, JsonReader& r, Service& s) {
  JobSpec& spec = builder.spec();
  spec.kind = JobKind::upscale;
  r.skip({"kind"});
  const std::string image = r.text("init").value_or("");
  if (image.empty()) fail_field("init", "is missing");
  const Tensor pixels = decoded_picture(picture_bytes(image, "init", &s.store()), "init");
  builder.picture("image", pixels);
  UpscaleSettings& u = spec.upscale;
  const std::string name = r.text("upscale").value_or("lanczos");
  set_upscaler(u, name, s);
  u.width = r.integer("width", 0, most_upscaled_side).value_or(0);
  u.height = r.integer("height", 0, most_upscaled_side).value_or(0);
  const auto [height, width] = upscaled_size(pixels, u);  // which checks it
  spec.pixels = height * width;
  for (const std::string& other : r.ignored())
    throw HttpFault(422, "unknown_setting", str("an upscale job has no '", other, "'"), other);
  spec.shown = {{"upscale", name}, {"init", spec.shown["image"]}};
  return std::move(spec);
}

void post_job(const Call& c, JsonReader& r) {
  if (trimmed(c.request->body).empty())
    throw HttpFault(400, "bad_json", "the body is empty: it must be a JSON object of settings");
  SettingsBuilder builder(c.service.source());
  JobSpec spec;
  const std::string kind = r.text("kind").value_or("generate");
  if (kind == "upscale") {
    spec = upscale_spec(builder, r, c.service);
  } else {
    if (kind != "generate") fail_field("kind", "must be generate or upscale");
    for (const auto& [name, value] : r.object().items())
      if (name != "kind") builder.set(name, value);
    spec = builder.finish();
  }
  const auto job = c.service.submit(c, std::move(spec));
  const auto view = c.service.queue().find(job->id);  // none: it has ended and is forgotten
  c.reply(job_json(view.value_or(JobView{.job = job, .status = JobStatus::completed})), 202);
}

void plan(const Call& c, JsonReader& r) {
  SettingsBuilder builder(c.service.source());
  for (const auto& [name, value] : r.object().items()) {
    if (name == "init" || name == "mask" || name == "control")
      fail_field(name, "a plan is of a prompt alone");
    builder.set(name, value);
  }
  c.service.answer_plan(c, builder.finish());
}

void delete_job(const Call& c) {
  job_of(c);
  c.service.queue().cancel(c.parts.at(0));
  c.reply(job_json(job_of(c)));
}

void delete_jobs(const Call& c) {
  c.service.queue().cancel_all();
  c.reply({{"jobs", jobs_json(c.service.queue().all())}});
}

void skip(const Call& c) {
  job_of(c);
  if (!c.service.queue().skip(c.parts.at(0)))
    throw HttpFault(409, "not_running", "the job does not run");
  c.reply(job_json(job_of(c)));
}

void move(const Call& c, JsonReader& r) {
  const auto position = r.integer("position", 0, 1 << 20);
  if (!position) fail_field("position", "is missing");
  job_of(c);
  if (!c.service.queue().move(c.parts.at(0), static_cast<size_t>(*position)))
    throw HttpFault(409, "not_waiting", "the job does not wait");
  c.reply(job_json(job_of(c)));
}

void preview(const Call& c) {
  constexpr int64_t side = 512;
  c.service.look();
  const auto p = c.service.preview(c.parts.at(0));
  if (!p) throw HttpFault(404, "not_found", "there is no preview yet");
  c.reply(Reply{.type = "image/jpeg",
                .body = small_jpeg(p->pixels, side),
                .headers = {{"Cache-Control", "no-store"},
                            {"Content-Security-Policy", "default-src 'none'"}}});
}

// Whoever comes without the key hears no more than whether all is well.
void health(const Call& c) {
  const auto [name, ready] = c.service.model();
  const GuardOptions& guard = c.service.given().guard;
  const bool is_told = guard.key.empty() && guard.user.empty();
  const std::string lost = c.service.device_fault(),
                    fault = lost.empty() ? c.service.last_error() : lost;
  c.reply({{"model", name},
           {"ready", ready && lost.empty()},
           {"queue", c.service.queue().waiting().size()},
           {"last_error", fault.empty() || !is_told ? Json() : Json(fault)}},
          lost.empty() ? 200 : 503);
}

std::vector<Route> routes() {
  return {
      {"POST", "/ebb/v1/jobs", with_json(post_job), On::models, large_body, {.makes_job = true}},
      {"POST", "/ebb/v1/plan", with_json(plan), On::models},
      {"GET", "/ebb/v1/jobs",
       [](const Call& c) {
         c.reply({{"jobs", jobs_json(c.service.queue().all())}});
       }},
      {"DELETE", "/ebb/v1/jobs", delete_jobs},
      {"GET", "/ebb/v1/jobs/{}", [](const Call& c) { c.reply(job_json(job_of(c))); }},
      {"DELETE", "/ebb/v1/jobs/{}", delete_job},
      {"PATCH", "/ebb/v1/jobs/{}", with_json(move)},
      {"POST", "/ebb/v1/jobs/{}/skip", skip},
      {"GET", "/ebb/v1/jobs/{}/preview", preview},
      {"GET", "/healthz", health, On::io, small_body, {.open = true}},
  };
}

}  // namespace

const Dialect& native() {
  static const Dialect d{"native", routes, render_fault};
  return d;
}

}  // namespace ebb::server::dialects
