// ComfyUI's API: prompts, the queue, what became of them, pictures.
#include <algorithm>

#include "apps/server/client_names.h"
#include "apps/server/comfy/graph.h"
#include "apps/server/comfy/prompt.h"
#include "apps/server/multipart.h"
#include "base/names.h"

namespace ebb::server::dialects {
namespace {

using comfy::is_prompt;

Reply nothing() { return {.type = "text/plain", .body = ""}; }

// Finished ones, the newest first, or all others, the one that runs and those that wait in order.
std::vector<JobView> prompts(Service& s, bool finished) {
  std::vector<JobView> out;
  for (JobView& v : s.queue().all())
    if (is_prompt(*v.job) && is_finished(v.status) == finished) out.push_back(std::move(v));
  return out;
}

// ---- prompts
// "" where there is none.
std::string id_in(JsonReader& r, const char* field) {
  std::string id = r.text(field).value_or("");
  if (!is_name(id, longest_id))
    fail_field(field, "must be at most ", longest_id, " printable signs");
  return id;
}

void post_prompt(const Call& c, JsonReader& r) {
  try {
    const Json* graph = r.object("prompt");
    if (!graph) throw comfy::GraphFault("no_prompt", "No prompt provided", "");
    JobSpec spec = comfy::read_graph(c, *graph);
    spec.id = id_in(r, "prompt_id");
    Json& note = spec.note["comfy"];
    note["client"] = id_in(r, "client_id");
    const int64_t number = note["number"] = c.service.queue().last_event();
    r.skip({"extra_data", "number", "front"});
    c.ignore(r);
    const auto job = c.service.submit(c, std::move(spec));
    c.reply({{"prompt_id", job->id}, {"number", number}, {"node_errors", Json::object()}});
  } catch (const comfy::GraphFault& f) {
    c.reply(f.body, f.status);
  }
}

void get_prompt(const Call& c) {
  c.reply({{"exec_info", {{"queue_remaining", prompts(c.service, false).size()}}}});
}

// ---- the queue
void get_queue(const Call& c) {
  Json running = Json::array(), pending = Json::array();
  for (const JobView& v : prompts(c.service, false))
    (v.status == JobStatus::queued ? pending : running).push_back(comfy::queue_entry(*v.job));
  c.reply({{"queue_running", std::move(running)}, {"queue_pending", std::move(pending)}});
}

// Only prompts, and of them those that wait.
void post_queue(const Call& c, JsonReader& r) {
  const bool clear = r.truth("clear").value_or(false);
  const Json* ids = r.array("delete");
  for (const JobView& v : prompts(c.service, false)) {
    const bool named = ids && std::ranges::find(*ids, Json(v.job->id)) != ids->end();
    if (v.status == JobStatus::queued && (clear || named)) c.service.queue().cancel(v.job->id);
  }
  c.reply(nothing());
}

// What runs, or with a prompt_id that one if it runs.
void interrupt(const Call& c, JsonReader& r) {
  const auto id = r.text("prompt_id");
  for (const std::string& running : c.service.queue().running_ids())
    if (!id || *id == running) c.service.queue().cancel(running);
  c.reply(nothing());
}

// ---- what became of them
void history(const Call& c) {
  Json out = Json::object();
  auto all = prompts(c.service, true);
  std::ranges::reverse(all);
  for (const JobView& v : all) out[v.job->id] = comfy::history_entry(v);
  c.reply(out);
}

void history_of(const Call& c) {
  const auto v = c.service.queue().find(c.parts.at(0));
  Json out = Json::object();
  if (v && is_prompt(*v->job) && is_finished(v->status)) out[v->job->id] = comfy::history_entry(*v);
  c.reply(out);
}

// ---- pictures
const Headers picture_headers = {{"Cache-Control", "private, no-cache"},
                                 {"Content-Security-Policy", "default-src 'none'"}};

// Names are looked up; no path is made of them.
void view(const Call& c) {
  Service& s = c.service;
  const std::string_view name = c.request->parameter("filename");
  const HttpFault missing(404, "not_found", "there is no such picture, or no longer");
  if (c.request->parameter("type") == "input") {
    const auto upload = s.of_protocol<comfy::Uploads>().find(name);
    if (!upload) throw missing;
    return c.reply(Reply{.type = "image/png",
                         .body = {upload->png.begin(), upload->png.end()},
                         .headers = picture_headers});
  }
  const std::string_view id = name.substr(0, name.rfind('.'));
  const auto picture = s.store().find(id);
  if (!picture || name != picture->id + std::string(ending_of(picture->format))) throw missing;
  auto bytes = s.store().bytes(id);
  if (!bytes) throw missing;
  c.reply(Reply{.type = std::string(type_of(picture->format)),
                .body = std::move(*bytes),
                .headers = picture_headers});
}

void upload_image(const Call& c) {
  const auto parts = read_multipart(c.request->header("content-type"), c.request->body);
  const auto value = [&](std::string_view name) {
    const auto at = std::ranges::find(parts, name, &Part::name);
    return at == parts.end() ? std::string() : std::string(at->body);
  };
  const auto image = std::ranges::find(parts, "image", &Part::name);
  if (image == parts.end()) fail_field("image", "is missing");
  if (const std::string type = value("type"); !type.empty() && type != "input")
    fail_field("type", "must be input: graphs read no other pictures");
  if (!value("subfolder").empty()) fail_field("subfolder", "there are none: it must be empty");
  const std::string overwrite = small_letters(value("overwrite"));
  const std::string name = c.service.of_protocol<comfy::Uploads>().add(
      image->file, image->body, overwrite == "true" || overwrite == "1");
  c.reply({{"name", name}, {"subfolder", ""}, {"type", "input"}});
}

std::vector<Route> routes() {
  constexpr size_t small = 4096;
  return comfy::with_prefixes({
      {"POST", "/prompt", with_json(post_prompt), On::models, small_body, {.makes_job = true}},
      {"GET", "/prompt", get_prompt},
      {"GET", "/queue", get_queue},
      {"POST", "/queue", with_json(post_queue)},
      {"POST", "/interrupt", with_json(interrupt), On::io, small},
      {"GET", "/history", history},
      {"GET", "/history/{}", history_of},
      {"GET", "/view", view},
      {"POST",
       "/upload/image",
       upload_image,
       On::codec,
       large_body,
       {.accepts = "multipart/form-data"}},
  });
}

}  // namespace

const Dialect& comfy() {
  static const Dialect d{"comfy", routes, server::comfy::render_fault};
  return d;
}

}  // namespace ebb::server::dialects
