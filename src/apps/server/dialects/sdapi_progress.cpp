// A1111's API: progress, interruption, /internal.
#include <algorithm>

#include "apps/server/base64.h"
#include "apps/server/request_limits.h"
#include "apps/server/sdapi/request.h"

namespace ebb::server::dialects {
namespace {

constexpr int64_t preview_side = 512;

Json null_task() {
  return {{"active", false},       {"queued", false}, {"completed", false},
          {"progress", nullptr},   {"eta", nullptr},  {"live_preview", nullptr},
          {"id_live_preview", -1}, {"textinfo", ""}};
}

bool is_loading(Service& s) {
  const auto [name, ready] = s.model();
  return !name.empty() && !ready;
}

// Of the job that runs. A share of 0 means that nothing does.
double share_of(const JobView& v) { return std::min(0.01 + v.progress.share, 1.0); }
// In seconds; by the time that was spent where the engine does not know it.
double left_of(const JobView& v) {
  if (v.progress.seconds_left >= 0) return v.progress.seconds_left;
  const double spent = std::max(0.0, unix_time() - v.started);
  return spent / share_of(v) - spent;
}

Json preview_text(Service& s, const std::string& job, bool as_url, int64_t& number) {
  const auto p = s.preview(job);
  if (!p) return nullptr;
  number = p->number;
  const std::string text = base64(small_jpeg(p->pixels, preview_side));
  return as_url ? "data:image/jpeg;base64," + text : text;
}

// Batches, as A1111 counts them: each twice where there is a second pass.
struct Batches {
  int64_t count = 0, number = 0;
};
Batches batches_of(const JobView& v) {
  const cli::GenerateFlags& o = v.job->spec.flags;
  const int64_t size = std::max<int64_t>(o.generate.batch, 1),
                rounds = (v.job->spec.images() + size - 1) / size;
  Batches out{rounds, std::min(v.progress.image / size, rounds - 1)};
  if (o.modes.hires.empty()) return out;
  const double of_round = v.progress.share * static_cast<double>(rounds) -
                          static_cast<double>(out.number);  // the passes are half of it each
  return {2 * rounds, 2 * out.number + (of_round >= 0.5 ? 1 : 0)};
}

void progress(const Call& c) {
  Service& s = c.service;
  s.look();
  const auto v = s.queue().running();
  const bool skips = c.request->parameter("skip_current_image") == "true";
  Json state = {{"skipped", false}, {"interrupted", false}, {"stopping_generation", false},
                {"job", ""},        {"job_count", 0},       {"job_timestamp", "0"},
                {"job_no", 0},      {"sampling_step", 0},   {"sampling_steps", 0}};
  Json out = {{"progress", 0.0},
              {"eta_relative", 0.0},
              {"state", state},
              {"current_image", nullptr},
              {"textinfo", nullptr}};
  if (v) {
    const JobProgress& p = v->progress;
    state["interrupted"] = v->job->cancel.load();
    state["skipped"] = v->job->skip.load();
    state["job"] = "scripts_txt2img";
    const Batches batches = batches_of(*v);
    state["job_count"] = is_loading(s) ? Json(-1) : Json(batches.count);
    state["job_no"] = batches.number;
    state["job_timestamp"] = sdapi::timestamp(v->started);
    state["sampling_step"] = p.step, state["sampling_steps"] = p.steps;
    int64_t number = 0;
    out = {{"progress", share_of(*v)},
           {"eta_relative", left_of(*v)},
           {"state", state},
           {"current_image", skips ? Json() : preview_text(s, v->job->id, false, number)},
           {"textinfo", nullptr}};
  }
  c.reply(out);
}

void internal_progress(const Call& c, JsonReader& r) {
  Service& s = c.service;
  s.look();
  const std::string id = r.text("id_task").value_or("");
  const int64_t seen = r.integer("id_live_preview", -1, largest_seed).value_or(-1);
  const bool live = r.truth("live_preview").value_or(true);
  Json out = null_task();
  const auto v = s.queue().find(id);
  if (!v) {
    out["completed"] = s.finished().knows(id, steady_time());
    return c.reply(out);
  }
  out["completed"] = is_finished(v->status);
  if (v->status == JobStatus::queued) {
    out["queued"] = true;
    out["textinfo"] = str("In queue: ", v->position + 1, "/", s.queue().waiting().size());
  }
  if (v->status == JobStatus::generating) {
    out["active"] = true;
    out["progress"] = share_of(*v), out["eta"] = left_of(*v);
    out["current_step"] = v->progress.step, out["total_steps"] = v->progress.steps;
    int64_t number = -1;
    const auto p = s.preview(id);
    if (live && p && p->number != seen) out["live_preview"] = preview_text(s, id, true, number);
    out["id_live_preview"] = number < 0 ? seen : number;
  }
  c.reply(out);
}

void interrupt(const Call& c) {
  for (const std::string& id : c.service.queue().running_ids()) c.service.queue().cancel(id);
  c.reply(Json::object());
}

void skip(const Call& c) {
  for (const std::string& id : c.service.queue().running_ids()) c.service.queue().skip(id);
  c.reply(Json());
}

void pending(const Call& c) {
  Json ids = c.service.queue().running_ids();
  for (const std::string& id : c.service.queue().waiting()) ids.push_back(id);
  c.reply({{"size", ids.size()}, {"tasks", ids}});
}

std::vector<Route> routes() {
  return sdapi::with_prefixes({
      {"GET", "/sdapi/v1/progress", progress},
      {"POST", "/sdapi/v1/interrupt", interrupt, On::io},
      {"POST", "/sdapi/v1/skip", skip, On::io},
      {"GET",
       "/internal/ping",
       [](const Call& c) { c.reply(Json::object()); },
       On::io,
       small_body,
       {.open = true}},
      {"GET", "/internal/pending-tasks", pending, On::io},
      {"POST", "/internal/progress", with_json(internal_progress)},
  });
}

}  // namespace

const Dialect& sdapi_progress() {
  static const Dialect d{"sdapi_progress", routes, sdapi::render_fault};
  return d;
}

}  // namespace ebb::server::dialects
