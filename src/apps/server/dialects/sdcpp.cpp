// stable-diffusion.cpp's asynchronous protocol: jobs that are polled.
#include <algorithm>

#include "apps/server/base64.h"
#include "apps/server/job_pictures.h"
#include "apps/server/lora_list.h"
#include "apps/server/pictures.h"
#include "apps/server/request_limits.h"
#include "apps/server/service.h"
#include "base/names.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/solver/sampler.h"

namespace ebb::server::dialects {
namespace {

Reply render_sdcpp(const HttpFault& f, const Request& r) {
  Reply out = render_fault(f, r);
  if (out.status == 422) out.status = 400;  // it knows no other for a bad body
  out.body = json_text({{"error", f.what()}});
  return out;
}

void refuse_given(JsonReader& r, std::initializer_list<const char*> names) {
  for (const char* n : names) {
    const Json* v = r.given(n);
    if (v && *v != false) fail_field(n, "ebb does not have this");
  }
}

void set_sampling(const Call& c, SettingsBuilder& to, const Json& params) {
  JsonReader r(params);
  const std::string method = r.text("sample_method").value_or("");
  if (!method.empty()) to.set("sampler", method, "sample_method");
  if (const auto v = r.text("scheduler"); v && !v->empty() && *v != "default")
    to.set("schedule", *v, "scheduler");
  to.set("steps", r.integer("sample_steps", 1, most_steps).value_or(20), "sample_steps");
  if (const auto eta = r.number("eta");
      eta && takes_option(method.empty() ? "auto" : method, "eta"))
    to.set("options", str("eta=", number_text(*eta)), "eta");
  else if (eta.value_or(0) != 0)
    c.ignored->emplace_back("sample_params.eta");
  refuse_given(r, {"custom_sigmas"});
  if (const Json* guidance = r.object("guidance")) {
    JsonReader g(*guidance);
    if (const auto v = g.number("txt_cfg")) to.set("guidance", *v, "txt_cfg");
    if (const auto v = g.number("img_cfg"); v && *v > 0) to.set("image_guidance", *v, "img_cfg");
    c.ignore(g, "sample_params.guidance");
  }
  c.ignore(r, "sample_params");
}

void set_hires(const Call& c, SettingsBuilder& to, const Json& hires) {
  JsonReader r(hires);
  if (!r.truth("enabled").value_or(true)) return;
  to.set("hires", hires_text(r.number("scale").value_or(2), r.text("upscaler").value_or("latent"),
                             r.integer("steps", 0, most_steps).value_or(0),
                             r.number("denoising_strength").value_or(0.7)));
  c.ignore(r, "hires");
}

void set_pictures(SettingsBuilder& to, JsonReader& r) {
  if (const auto v = r.text("init_image"); v && !v->empty()) {
    to.picture("init", decoded_picture(picture_bytes(*v, "init_image"), "init_image"));
    to.set("strength", r.number("strength").value_or(0.75));
  }
  if (const auto v = r.text("mask_image"); v && !v->empty())
    to.picture("mask",
               decoded_mask(picture_bytes(*v, "mask_image"), MaskRule::white, "mask_image"));
  refuse_given(r, {"control_image", "ref_images"});
}

void img_gen(const Call& c, JsonReader& r) {
  SettingsBuilder to(c.service.source());
  to.set("dialect", "sdcpp");
  to.set("prompt", r.text("prompt").value_or(""));
  to.set("negative", r.text("negative_prompt").value_or(""), "negative_prompt");
  to.set_size(r.integer("width", size_multiple, most_side),
              r.integer("height", size_multiple, most_side));
  to.set("seed", r.integer("seed", -1, largest_seed).value_or(-1));
  to.set("n", r.integer("batch_count", 1, most_rounds).value_or(1), "batch_count");
  if (const auto skip = r.integer("clip_skip", -1, most_clip_skip); skip && *skip > 0)
    to.set("clip_skip", *skip);
  const Json none = Json::object();
  const Json* params = r.object("sample_params");
  set_sampling(c, to, params ? *params : none);
  if (const Json* hires = r.object("hires")) set_hires(c, to, *hires);
  if (const Json* loras = r.array("lora")) to.set("lora", lora_setting(loras));
  set_pictures(to, r);
  r.skip({"vae_tiling_params"});  // ebb decides it by the memory that there is
  JobSpec spec = to.finish();
  spec.keeps = false;
  const auto format = io::picture_format("." + r.text("output_format").value_or("png"));
  if (!format) fail_field("output_format", "must be png, jpeg or webp");
  spec.format = *format;
  c.ignore(r);
  const auto job = c.service.submit(c, std::move(spec));
  c.reply({{"id", job->id},
           {"kind", "img_gen"},
           {"status", "queued"},
           {"created", static_cast<int64_t>(job->created)},
           {"poll_url", "/sdcpp/v1/jobs/" + job->id}},
          202);
}

Json time_json(double time) { return time > 0 ? Json(static_cast<int64_t>(time)) : Json(); }

Json job_text(Service& s, const JobView& v) {
  Json out = {{"id", v.job->id},
              {"kind", "img_gen"},
              {"status", name_of(v.status)},
              {"created", static_cast<int64_t>(v.job->created)},
              {"started", time_json(v.started)},
              {"completed", time_json(v.completed)},
              {"queue_position", std::max<int64_t>(v.position, 0)},
              {"result", nullptr},
              {"error", nullptr}};
  if (v.error.status != 0) out["error"] = {{"code", v.error.code}, {"message", v.error.message}};
  if (v.status != JobStatus::completed) return out;
  Json images = Json::array();
  const std::vector<std::string> files = files_of_pictures(s.store(), v);
  for (size_t i = 0; i < files.size(); ++i)
    images.push_back({{"index", v.images[i].index}, {"b64_json", base64(files[i])}});
  constexpr std::string_view names[] = {"png", "jpeg", "webp"};
  out["result"] = {{"output_format", names[static_cast<size_t>(v.job->spec.format)]},
                   {"images", std::move(images)}};
  return out;
}

JobView job_of(const Call& c) {
  const auto v = c.service.queue().find(c.parts.at(0));
  if (!v && c.service.finished().knows(c.parts.at(0), steady_time()))
    throw HttpFault(410, "expired", "the job's result is no longer kept");
  if (!v) throw HttpFault(404, "not_found", "job not found");
  return *v;
}

void get_job(const Call& c) { c.reply(job_text(c.service, job_of(c))); }

void cancel(const Call& c) {
  job_of(c);
  c.service.queue().cancel(c.parts.at(0));
  c.reply(job_text(c.service, job_of(c)));
}

void capabilities(const Call& c) {
  Json samplers = Json::array(), schedules = Json::array(), loras = Json::array();
  for (const Sampler* s : all_samplers()) samplers.push_back(s->name);
  for (const Schedule* s : all_schedules()) schedules.push_back(s->name);
  for (const CatalogueFile& f : c.service.catalogue().all(FileKind::lora))
    loras.push_back({{"name", f.name}, {"path", f.file}});
  c.reply({{"kinds", {"img_gen"}},
           {"samplers", samplers},
           {"schedulers", schedules},
           {"loras", loras},
           {"output_formats", {"png", "jpeg", "webp"}},
           {"limits",
            {{"queue", c.service.given().queue.jobs},
             {"max_width", most_side},
             {"max_height", most_side}}}});
}

std::vector<Route> routes() {
  return {
      {"GET", "/sdcpp/v1/capabilities", capabilities, On::models},
      {"POST",
       "/sdcpp/v1/img_gen",
       with_json(img_gen),
       On::models,
       large_body,
       {.makes_job = true}},
      {"POST", "/sdcpp/v1/vid_gen",
       [](const Call&) { throw HttpFault(501, "not_implemented", "ebb makes no videos"); }},
      {"GET", "/sdcpp/v1/jobs/{}", get_job},
      {"POST", "/sdcpp/v1/jobs/{}/cancel", cancel},
  };
}

}  // namespace

const Dialect& sdcpp() {
  static const Dialect d{"sdcpp", routes, render_sdcpp};
  return d;
}

}  // namespace ebb::server::dialects
