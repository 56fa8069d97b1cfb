#include "apps/server/job.h"

#include "apps/server/queue.h"

namespace ebb::server {
namespace {

Json null_or(double time) { return time > 0 ? Json(time) : Json(); }

}  // namespace

std::string_view name_of(JobStatus status) {
  constexpr std::string_view names[] = {"queued", "generating", "completed", "failed", "cancelled"};
  return names[static_cast<size_t>(status)];
}

double steady_time() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double unix_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

Json job_json(const JobView& v) {
  const Job& job = *v.job;
  Json out = {{"id", job.id},
              {"kind", job.spec.kind == JobKind::generate ? "generate" : "upscale"},
              {"status", name_of(v.status)},
              {"created", job.created},
              {"started", null_or(v.started)},
              {"completed", null_or(v.completed)},
              {"queue_position", v.position < 0 ? Json() : Json(v.position)},
              {"settings", job.spec.shown},
              {"progress", nullptr},
              {"images", Json::array()},
              {"warnings", v.warnings},
              {"error", nullptr}};
  if (v.status == JobStatus::generating) {
    const JobProgress& p = v.progress;
    out["progress"] = {
        {"image", p.image},        {"images", p.images},
        {"step", p.step},          {"steps", p.steps},
        {"share", p.share},        {"eta_s", p.seconds_left < 0 ? Json() : Json(p.seconds_left)},
        {"preview_id", p.preview}, {"cancelling", job.cancel.load()}};
  }
  for (const JobImage& i : v.images)
    out["images"].push_back({{"index", i.index},
                             {"id", i.id},
                             {"url", "/ebb/v1/images/" + i.id},
                             {"seed", i.seed},
                             {"batch", i.batch}});
  if (v.error.status != 0) out["error"] = {{"code", v.error.code}, {"message", v.error.message}};
  return out;
}

Json jobs_json(const std::vector<JobView>& all) {
  Json out = Json::array();
  for (const JobView& v : all) out.push_back(job_json(v));
  return out;
}

}  // namespace ebb::server
