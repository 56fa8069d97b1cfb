#include "apps/server/comfy/prompt.h"

#include <algorithm>
#include <cmath>

namespace ebb::server::comfy {
namespace {

const Json& note(const Job& job) { return job.spec.note.at("comfy"); }

int64_t milliseconds(double time) { return static_cast<int64_t>(std::llround(time * 1000)); }

Json messages_of(const JobView& v) {
  const auto at = [&](double time) -> Json {
    return {{"prompt_id", v.job->id}, {"timestamp", milliseconds(time)}};
  };
  Json out = Json::array({Json::array({"execution_start", at(v.started)})});
  if (v.status == JobStatus::completed) {
    out.push_back(Json::array({"execution_success", at(v.completed)}));
  } else {
    Json end = end_of(v);
    end["timestamp"] = milliseconds(v.completed);
    out.push_back(
        Json::array({v.status == JobStatus::failed ? "execution_error" : "execution_interrupted",
                     std::move(end)}));
  }
  return out;
}

}  // namespace

// A note of a file may be damaged: its job is none of this protocol then.
bool is_prompt(const Job& job) {
  const auto at = job.spec.note.find("comfy");
  if (at == job.spec.note.end() || !at->is_object()) return false;
  const auto has = [&](const char* name, auto is) {
    const auto value = at->find(name);
    return value != at->end() && ((*value).*is)();
  };
  using Is = bool (Json::*)() const;
  constexpr Is text = &Json::is_string, object = &Json::is_object,
               number = &Json::is_number_integer;
  return has("client", text) && has("sampler", text) && has("class", text) &&
         has("shows", object) && has("graph", object) && has("number", number);
}

std::string client_of(const Job& job) { return note(job).value("client", ""); }

std::string sampler_of(const Job& job) { return note(job).value("sampler", ""); }

Json queue_entry(const Job& job) {
  Json shows = Json::array();
  for (const auto& [node, type] : note(job).at("shows").items()) shows.push_back(node);
  return Json::array({note(job).value("number", int64_t{0}), job.id, note(job).at("graph"),
                      Json::object(), std::move(shows)});
}

Json outputs_of(const JobView& v) {
  Json out = Json::object();
  if (v.images.empty()) return out;
  for (const auto& [node, type] : note(*v.job).at("shows").items()) {
    Json images = Json::array();
    for (const JobImage& i : v.images)
      images.push_back({{"filename", i.id + std::string(ending_of(v.job->spec.format))},
                        {"subfolder", ""},
                        {"type", type}});
    out[node] = {{"images", std::move(images)}};
  }
  return out;
}

Json end_of(const JobView& v) {
  Json out = {{"prompt_id", v.job->id},
              {"node_id", note(*v.job).at("sampler")},
              {"node_type", note(*v.job).at("class")},
              {"executed", Json::array()}};
  if (v.status == JobStatus::failed)
    out.update({{"exception_message", v.error.message},
                {"exception_type", v.error.code},
                {"traceback", Json::array()},
                {"current_inputs", Json::object()},
                {"current_outputs", Json::array()}});
  return out;
}

Json history_entry(const JobView& v) {
  const bool done = v.status == JobStatus::completed;
  return {{"prompt", queue_entry(*v.job)},
          {"outputs", outputs_of(v)},
          {"status",
           {{"status_str", done ? "success" : "error"},
            {"completed", done},
            {"messages", messages_of(v)}}},
          {"meta", Json::object()}};
}

Reply render_fault(const HttpFault& f, const Request& r) {
  Reply out = server::render_fault(f, r);
  if (out.status == 422) out.status = 400;  // it knows no other for a bad prompt
  out.body = json_text({{"error",
                         {{"type", f.code},
                          {"message", f.what()},
                          {"details", f.field},
                          {"extra_info", Json::object()}}},
                        {"node_errors", Json::object()}});
  return out;
}

std::vector<Route> with_prefixes(std::vector<Route> routes) {
  const size_t count = routes.size();
  for (size_t i = 0; i < count; ++i) {
    Route under = routes[i];
    under.pattern = "/api" + under.pattern;
    routes.push_back(std::move(under));
  }
  return routes;
}

}  // namespace ebb::server::comfy
