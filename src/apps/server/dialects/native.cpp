// The native protocol: jobs and events. docs/server.md describes it.
#include <algorithm>
#include <charconv>

#include "apps/server/pictures.h"
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

Json jobs_json(Service& s) {
  Json out = Json::array();
  for (const JobView& v : s.queue().all()) out.push_back(job_json(v));
  return out;
}

Json state_json(Service& s) {
  const int64_t seq = s.queue().last_event();  // before: what follows is told again
  const auto running = s.queue().running();
  const auto [name, ready] = s.model();
  return {{"seq", seq},
          {"running", running ? Json(running->job->id) : Json()},
          {"model",
           {{"name", name},
            {"state", name.empty() ? "none"
                      : ready      ? "ready"
                                   : "loading"}}},
          {"jobs", jobs_json(s)}};
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
  u.width = r.integer("width", 0, 16384).value_or(0);
  u.height = r.integer("height", 0, 16384).value_or(0);
  if (!(u.scale > 0 && u.scale <= 16)) fail_field("upscale", "the scale must be up to 16");
  const auto [h, w] = upscaled_size(pixels, u);
  check_pixels("upscale", static_cast<double>(h), static_cast<double>(w));
  for (const std::string& other : r.ignored())
    throw HttpFault(422, "unknown_setting", str("an upscale job has no '", other, "'"), other);
  spec.shown = {{"upscale", name}, {"init", spec.shown["image"]}};
  return std::move(spec);
}

void post_job(const Call& c, JsonReader& r) {
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
  c.reply(job_json(*c.service.queue().find(job->id)), 202);
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
  c.reply({{"jobs", jobs_json(c.service)}});
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

// ---- events -----------------------------------------------------------------------------------

std::string event_text(const Event& e) {
  return str("id: ", e.number, "\nevent: ", e.name, "\ndata: ", json_text(e.data), "\n\n");
}

// What a client reads: events wait until the state, or what it missed, is sent.
class Feed : public std::enable_shared_from_this<Feed> {
 public:
  Feed(Service& s, std::shared_ptr<EventStream> to) : service_(s), to_(std::move(to)) {}

  void start(const Call& c, std::optional<int64_t> seen) {
    const int64_t number =
        service_.queue().subscribe([self = shared_from_this()](const Event& e) { self->add(e); });
    c.exchange->on_leave([&s = service_, number] { s.queue().unsubscribe(number); });
    const auto missed = seen ? service_.queue().events_since(*seen) : std::nullopt;
    if (missed) {
      std::string all;  // at once, as what waits for a slow reader is bounded
      for (const Event& e : *missed) all += e.data.is_null() ? "" : event_text(e);
      if (!all.empty()) to_->send(std::move(all));
      for (const Event& e : *missed)
        if (e.data.is_null()) add_now(e);
      return begin(missed->empty() ? *seen : missed->back().number);
    }
    begin(send_state());
  }

 private:
  int64_t send_state() {
    const Json state = state_json(service_);
    const auto seq = state["seq"].get<int64_t>();
    add_now({seq, "state", state});
    return seq;
  }
  void begin(int64_t behind) {
    const std::lock_guard lock(mutex_);
    for (const Event& e : std::exchange(waiting_, {}))
      if (e.number > behind) add_now(e);
    ready_ = true;
  }
  // Under the queue's lock: asks it for nothing.
  void add(const Event& e) {
    const std::lock_guard lock(mutex_);
    if (!ready_) return waiting_.push_back(e);
    add_now(e);
  }
  void add_now(const Event& e) {
    if (e.name == "state" && e.data.is_null())
      return service_.codec().add([self = shared_from_this()] { self->send_state(); });
    to_->send(event_text(e));
    if (e.name == "bye") to_->close();
  }

  Service& service_;
  std::shared_ptr<EventStream> to_;
  std::mutex mutex_;
  bool ready_ = false;
  std::vector<Event> waiting_;
};

std::optional<int64_t> number_in(std::string_view text) {
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return out;
}

void events(const Call& c) {
  auto stream = c.exchange->stream(c.told());
  if (!stream) throw HttpFault(503, "too_many_streams", "too many clients read events");
  std::make_shared<Feed>(c.service, std::move(stream))
      ->start(c, number_in(c.request->header("last-event-id")));
}

void state(const Call& c) {
  Json out = state_json(c.service);
  const std::string_view since = c.request->parameter("since");
  c.service.look();
  if (since.empty()) return c.reply(out);
  const auto number = number_in(since);
  if (!number) throw HttpFault(422, "invalid_value", "since: must be a number", "since");
  const auto missed = c.service.queue().events_since(*number);
  out["events"] = nullptr;
  if (missed) {
    out["events"] = Json::array();
    for (const Event& e : *missed)
      out["events"].push_back({{"id", e.number}, {"event", e.name}, {"data", e.data}});
  }
  c.reply(out);
}

void health(const Call& c) {
  const auto [name, ready] = c.service.model();
  const std::string fault = c.service.last_error();
  c.reply({{"model", name},
           {"ready", ready},
           {"queue", c.service.queue().waiting().size()},
           {"last_error", fault.empty() ? Json() : Json(fault)}});
}

std::vector<Route> routes() {
  return {
      {"POST", "/ebb/v1/jobs", with_json(post_job), On::codec, large_body},
      {"POST", "/ebb/v1/plan", with_json(plan)},
      {"GET", "/ebb/v1/jobs",
       [](const Call& c) {
         c.reply({{"jobs", jobs_json(c.service)}});
       }},
      {"DELETE", "/ebb/v1/jobs", delete_jobs},
      {"GET", "/ebb/v1/jobs/{}", [](const Call& c) { c.reply(job_json(job_of(c))); }},
      {"DELETE", "/ebb/v1/jobs/{}", delete_job},
      {"PATCH", "/ebb/v1/jobs/{}", with_json(move)},
      {"POST", "/ebb/v1/jobs/{}/skip", skip},
      {"GET", "/ebb/v1/jobs/{}/preview", preview},
      {"GET", "/ebb/v1/events", events},
      {"GET", "/ebb/v1/state", state},
      {"GET", "/healthz", health, On::io, small_body, {.open = true}},
  };
}

}  // namespace

const Dialect& native() {
  static const Dialect d{"native", routes, render_fault};
  return d;
}

}  // namespace ebb::server::dialects
