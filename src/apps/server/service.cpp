#include "apps/server/service.h"

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/server/fault.h"
#include "apps/server/job_pictures.h"
#include "apps/server/page.h"
#include "base/hash.h"
#include "base/names.h"
#include "core/device_lost.h"
#include "core/out_of_memory.h"
#include "diffusion/solver/run.h"

namespace ebb::server {
namespace {

constexpr double looking_seconds = 10, preview_interval = 0.3;
constexpr size_t codec_threads = 2;

// Tells of each request when it is answered.
class Logged final : public Exchange {
 public:
  Logged(std::shared_ptr<Exchange> to, const Request& r)
      : to_(std::move(to)), what_(str(r.method, ' ', printable(r.path.substr(0, 200)))) {}
  void reply(Reply r) override {
    say(r.status);
    to_->reply(std::move(r));
  }
  std::shared_ptr<EventStream> stream(Headers headers) override {
    auto out = to_->stream(std::move(headers));
    if (out) say(200);
    return out;
  }
  std::shared_ptr<EventStream> websocket(const Request& request) override {
    auto out = to_->websocket(request);
    if (out) say(101);
    return out;
  }
  void on_leave(std::function<void()> call) override { to_->on_leave(std::move(call)); }

 private:
  void say(int status) const {
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start_;
    std::fprintf(stderr, "%s %d %.0f ms\n", what_.c_str(), status, spent.count());
  }
  std::shared_ptr<Exchange> to_;
  std::string what_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Of a text that the format cannot hold, a picture without it.
std::vector<uint8_t> encoded(Service& s, const Job& job, const MadePicture& p) {
  const JobSpec& spec = job.spec;
  try {
    return io::encode_picture(spec.format, p.pixels, p.text, spec.quality);
  } catch (const Error& e) {
    s.queue().warn(job, str(e.what(), "; the picture has no text"));
    return io::encode_picture(spec.format, p.pixels, {}, spec.quality);
  }
}

// By which a process that goes on with a job knows which of its pictures are stored.
std::string tag_of(const Job& job, int64_t index) {
  char out[9];
  std::snprintf(out, sizeof out, "%08x",
                static_cast<unsigned>(fnv1a(str(job.file, '/', index)) & 0xffffffff));
  return out;
}

// A picture that is being encoded. Its job ends behind it, whatever becomes of it.
struct Encoding {
  Encoding(Queue& q, std::shared_ptr<Job> of) : queue(q), job(std::move(of)) {
    queue.encoding(*job);
  }
  ~Encoding() {
    try {
      queue.encoded(*job, std::move(image));
    } catch (const std::exception& e) {
      std::fprintf(stderr, "serve: a picture was not told: %s\n", e.what());
    }
  }
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;
  Queue& queue;
  std::shared_ptr<Job> job;
  std::optional<JobImage> image = {};  // none: it failed
};

// What the engine tells of a job, to the queue and the store.
class Running final : public JobEvents {
 public:
  Running(Service& s, std::shared_ptr<Job> job) : service_(s), job_(std::move(job)) {}

  bool progress(const JobProgress& p) override {
    JobProgress now = p;
    now.preview = preview_number_;
    service_.queue().progress(*job_, now);
    return !job_->cancel && !job_->skip;
  }
  bool wants_preview() override {
    const double now = unix_time();
    return service_.is_looked_at() && now - previewed_ >= preview_interval;
  }
  void preview(const Tensor& pixels) override {
    previewed_ = unix_time();
    preview_number_ = service_.set_preview(job_->id, pixels);
  }
  void picture(MadePicture p) override {
    const auto encoding = std::make_shared<Encoding>(service_.queue(), job_);
    service_.codec().add([&s = service_, encoding, p = std::move(p)] {
      const Job& job = *encoding->job;
      try {
        const JobSpec& spec = job.spec;
        std::string fault;
        auto bytes = encoded(s, job, p);
        JobImage image{.index = p.index, .seed = p.seed, .batch = p.batch};
        const std::string tag = tag_of(job, p.index);
        if (job.of_before) image.id = s.store().with_tag(tag);
        if (image.id.empty())
          image.id =
              s.store().add(std::move(bytes), {spec.format, p.seed, spec.keeps, tag}, &fault);
        if (const auto at = p.text.find("parameters"); at != p.text.end())
          image.parameters = at->second;
        if (!fault.empty()) s.queue().warn(job, fault);
        encoding->image = std::move(image);
      } catch (const std::exception& e) {
        s.queue().warn(job, e.what());
      }
    });
  }
  void warn(const std::string& text) override { service_.queue().warn(*job_, text); }
  void model(const std::string& name, bool ready) override { service_.set_model(name, ready); }

 private:
  Service& service_;
  std::shared_ptr<Job> job_;
  int64_t preview_number_ = 0;
  double previewed_ = 0;
};

HttpFault no_folder() {
  return {
      503, "folder_hangs",
      "the folders of --runs do not answer, as a mount whose server is gone: until they do, the "
      "runs of ebb train cannot be shown"};
}

HttpFault models_hang() {
  return {503, "folder_hangs",
          "the folders of models take too long to read, as a mount whose server is gone, or very "
          "many files: try again later"};
}

}  // namespace

void guarded(const Handler& handler, const Call& call, RenderFault fault) {
  const auto answer = [&](const HttpFault& f) { call.reply(fault(f, *call.request)); };
  try {
    handler(call);
  } catch (const HttpFault& f) {
    answer(f);
  } catch (const Error& e) {
    answer({422, "invalid_value", e.what()});
  } catch (const std::bad_alloc&) {
    answer({500, "out_of_memory", "serve: there is not enough memory for this request"});
  } catch (const std::exception& e) {
    answer({500, "internal", str("serve: ", e.what())});
  }
}

Service::Service(ServiceOptions options, const MakeEngine& engine)
    : options_(std::move(options)),
      guard_(options_.guard),
      store_(options_.out, options_.memory),
      settings_(options_.options_file),
      training_(options_.runs),
      catalogue_(std::make_unique<Catalogue>(options_.folders)),
      engine_(engine(*catalogue_)),
      codec_(codec_threads),
      folders_(options_.folder_time),
      scans_(options_.folder_time) {
  const std::string jobs =
      options_.out.empty() ? "" : (std::filesystem::path(options_.out) / ".jobs").string();
  queue_ = std::make_unique<Queue>(options_.queue, jobs, [this](const std::string& s) { say(s); });
  queue_->when_forgotten([this](const JobView& v) {
    if (v.job->spec.keeps || v.job->spec.gives_urls) return;
    for (const JobImage& i : v.images) store_.remove(i.id);
  });
  for (const Dialect* d : all_dialects())
    for (Route& r : d->routes()) {
      if (!r.fault) r.fault = d->fault;
      routes_.push_back(std::move(r));
    }
  for (Route& r : page_routes()) routes_.push_back(std::move(r));
  http_ = std::make_unique<HttpServer>(
      options_.addresses, options_.port, options_.limits,
      HttpHandler{.admit = [this](const Request& r) { return admit(r); },
                  .handle = [this](auto r, auto e) { handle(std::move(r), std::move(e)); },
                  .fault =
                      [](int status, const std::string& sentence) {
                        const char* code = status == 503 ? "too_much_waits" : "bad_request";
                        return render_fault({status, code, sentence}, {});
                      }});
}

Service::~Service() {
  stop();
  catalogue_->finish({});  // nobody waits for it any more
}

void Service::say(const std::string& line) const { std::fprintf(stderr, "%s\n", line.c_str()); }

void Service::run() {
  worker_ = std::jthread([this] { work(); });
  const std::jthread forgets([this](const std::stop_token& stop) { forget_in_time(stop); });
  http_->run();
  queue_->close(false);
  worker_.join();
  codec_.finish();
}

void Service::stop() {
  if (stopping_.exchange(true)) return;
  queue_->close(options_.drain);
  const auto end = [this] {
    ending_ = true;
    queue_->tell("bye", Json::object());
    http_->finish(options_.last_answers);
  };
  if (options_.drain)
    queue_->when_none_runs(end);
  else
    end();
}

// ---- requests ---------------------------------------------------------------------------------

const Route* Service::route_of(const Request& r, std::vector<std::string>* parts) const {
  const std::string_view method = r.method == "HEAD" ? std::string_view("GET") : r.method;
  for (const Route& route : routes_) {
    if (route.method != method) continue;
    auto found = matched(route.pattern, r.path);
    if (!found) continue;
    if (parts) *parts = std::move(*found);
    return &route;
  }
  return nullptr;
}

Admission Service::admit(const Request& r) {
  const Route* route = route_of(r, nullptr);
  Admission out{
      .refusal = {},
      .body_limit = route ? route->body : small_body,
      .headers = {{"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"}}};
  const RenderFault fault = route ? route->fault : render_fault;
  try {
    for (auto& h : guard_.cors(r)) out.headers.push_back(std::move(h));
    if (r.method == "OPTIONS") {
      RouteAccess open{.open = true};
      guard_.check(r, &open);
      out.refusal = guard_.preflight(r);
      return out;
    }
    guard_.check(r, route ? &route->access : nullptr);
    if (!route) throw HttpFault(404, "not_found", str("there is nothing at ", printable(r.path)));
    if (ending_) throw HttpFault(503, "shutting_down", "the server is shutting down");
  } catch (const HttpFault& f) {
    out.refusal = fault(f, r);
    if (options_.log)
      say(str(r.method, ' ', printable(r.path.substr(0, 200)), ' ', f.status, " refused"));
  }
  return out;
}

void Service::handle(std::shared_ptr<const Request> request, std::shared_ptr<Exchange> exchange) {
  std::vector<std::string> parts;
  const Route* route = route_of(*request, &parts);  // admit() has found it
  if (options_.log) exchange = std::make_shared<Logged>(std::move(exchange), *request);
  const Call call{*this, std::move(request), std::move(exchange), std::move(parts)};
  const auto answer = [route, call] { guarded(route->handler, call, route->fault); };
  if (route->on == On::io) return answer();
  if (route->on == On::folder)
    return folders_.add(answer,
                        [route, call] { call.reply(route->fault(no_folder(), *call.request)); });
  if (route->on == On::models && !catalogue_->has_scanned())
    return answer_behind_scan(call, route->handler);
  codec_.add(answer);
}

void Service::answer_later(const Call& call, const Handler& handler) const {
  guarded(handler, call, route_of(*call.request, nullptr)->fault);
}

SettingsSource Service::source() {
  const Json model = settings_.get("sd_model_checkpoint");
  return {*catalogue_, store_, options_.lora_dir, options_.embedding_dir,
          model.is_string() ? model.get<std::string>() : ""};
}

std::shared_ptr<const Job> Service::submit(const Call& call, JobSpec spec) {
  spec.client = call.request->remote;
  if (!spec.keeps || options_.out.empty()) check_fits_memory(spec, store_.most_in_memory());
  return queue_->submit(std::move(spec));
}

// Whoever is late is told so, and not answered a second time.
void Service::answer_behind_scan(const Call& call, const Handler& handler) {
  const auto is_answered = std::make_shared<std::atomic<bool>>(false);
  scans_.add(
      [this, call, handler, is_answered] {
        catalogue_->wait_for_scan();
        if (is_answered->exchange(true)) return;
        codec_.add([this, call, handler] { answer_later(call, handler); });
      },
      [this, call, is_answered] {
        if (!is_answered->exchange(true))
          answer_later(call, [](const Call&) { throw models_hang(); });
      });
}

void Service::answer_plan(const Call& call, JobSpec spec) {
  auto job = std::make_shared<Job>();
  job->spec = std::move(spec);
  const bool is_idle = queue_->run_idle([this, later = call.waiting(), job] {
    answer_later(later, [&](const Call& c) {
      try {
        const JobMemory m = engine_->plan(*job);
        c.reply({{"bytes", m.bytes}, {"limit", m.limit}, {"text", m.text}});
      } catch (const Error& e) {  // as where it does not fit
        c.reply({{"bytes", nullptr}, {"limit", nullptr}, {"text", e.what()}});
      }
    });
  });
  if (!is_idle) call.reply({{"bytes", nullptr}, {"limit", nullptr}, {"text", nullptr}});
}

void Service::answer_when_done(const Call& call, JobSpec spec, Render render) {
  const auto job = submit(call, std::move(spec));
  const auto cancel = [this, id = job->id] {
    codec_.add([this, id] { queue_->cancel(id); });  // which removes its files
  };
  try {
    if (!options_.keep_orphans) call.exchange->on_leave(cancel);
    queue_->when_finished(
        job->id, [this, later = call.waiting(), render = std::move(render)](const JobView& v) {
          codec_.add([this, later, render, v] {
            answer_later(later, [&](const Call& c) { c.reply(render(v)); });
          });
        });
  } catch (...) {  // nobody would get its pictures
    cancel();
    throw;
  }
}

// Finished jobs and their pictures go though nobody asks.
void Service::forget_in_time(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  while (!stop.stop_requested()) {
    queue_->forget();
    store_.forget();
    ::malloc_trim(0);  // what many large bodies at once took would stay in the heap
    wake.wait_for(lock, stop, options_.tidy, [] { return false; });
  }
}

// ---- the worker -------------------------------------------------------------------------------

void Service::work() {
  while (const auto job = queue_->next()) {
    const auto others = joined_to(job);
    if (others.empty())
      run_job(job, 0);
    else
      run_batch(others);
    unload_if_asked();
  }
}

void Service::unload_if_asked() {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(unload_, false)) return;
  }
  engine_->release();
  set_model("", false);
}

std::unique_ptr<JobEvents> Service::events_of(const std::shared_ptr<Job>& job) {
  return std::make_unique<Running>(*this, job);
}

int64_t Service::first_of(const Job& job) const {
  int64_t first = job.done_before;
  while (job.of_before && first < job.spec.images() && !store_.with_tag(tag_of(job, first)).empty())
    ++first;
  return first;
}

void Service::run_job(const std::shared_ptr<Job>& job, int64_t first) {
  Running events(*this, job);
  try {
    first = std::max(first, first_of(*job));
    if (first < job->spec.images()) engine_->run(*job, first, events);
    {
      const std::lock_guard lock(mutex_);
      last_error_.clear();
    }
    queue_->finish(*job, JobStatus::completed);
  } catch (const Cancelled&) {
    queue_->finish(*job, JobStatus::cancelled);
  } catch (const DeviceLost& e) {
    fail_job(*job, {500, "device_lost", e.what()});
    lose_device(e.what());
  } catch (const OutOfMemory& e) {
    engine_->release();
    fail_job(*job, {500, "out_of_memory", e.what()});
  } catch (const HttpFault& e) {
    fail_job(*job, {e.status, e.code, e.what()});
  } catch (const Error& e) {
    fail_job(*job, {500, "generation_failed", e.what()});
  } catch (const std::bad_alloc&) {
    engine_->release();
    fail_job(*job, {500, "out_of_memory", "serve: the host has not enough memory for this job"});
  } catch (const std::exception& e) {
    fail_job(*job, {500, "generation_failed", str("serve: ", e.what())});
  }
}

void Service::fail_job(const Job& job, const JobError& error) {
  {
    const std::lock_guard lock(mutex_);
    last_error_ = error.message;
  }
  if (options_.log) say(str("job ", printable(job.id), " failed: ", error.message.substr(0, 300)));
  queue_->finish(job, JobStatus::failed, error);
}

// The job that lost it has failed, so that the next process does not begin with it; those that wait
// stay in the folder for that process.
void Service::lose_device(const std::string& sentence) {
  {
    const std::lock_guard lock(mutex_);
    device_fault_ = sentence, model_ready_ = false;
  }
  queue_->close(false);
}

// ---- what is looked at ------------------------------------------------------------------------

void Service::look() {
  const std::lock_guard lock(mutex_);
  looked_ = unix_time();
}

bool Service::is_looked_at() const {
  const Json enabled = settings_.get("live_previews_enable");
  if (enabled.is_boolean() && !enabled.get<bool>()) return false;
  if (queue_->subscribers() > 0) return true;
  const std::lock_guard lock(mutex_);
  return unix_time() - looked_ < looking_seconds;
}

std::optional<Service::PreviewPicture> Service::preview(std::string_view job) const {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(previews_, job, &PreviewPicture::job);
  return at == previews_.end() ? std::nullopt : std::optional(*at);
}

int64_t Service::set_preview(const std::string& job, const Tensor& pixels) {
  constexpr size_t kept = 16;
  const std::lock_guard lock(mutex_);
  std::erase_if(previews_, [&](const PreviewPicture& p) { return p.job == job; });
  if (previews_.size() >= kept) previews_.pop_front();
  previews_.push_back({job, ++preview_number_, pixels});
  return preview_number_;
}

void Service::set_model(const std::string& name, bool ready) {
  {
    const std::lock_guard lock(mutex_);
    model_ = name, model_ready_ = ready;
  }
  queue_->tell("model", {{"name", name}, {"state", ready ? "ready" : "loading"}});
}

std::pair<std::string, bool> Service::model() const {
  const std::lock_guard lock(mutex_);
  return {model_, model_ready_};
}

std::string Service::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

std::string Service::device_fault() const {
  const std::lock_guard lock(mutex_);
  return device_fault_;
}

void Service::unload() {
  {
    const std::lock_guard lock(mutex_);
    unload_ = true;
  }
  queue_->run_idle([this] { unload_if_asked(); });
}

}  // namespace ebb::server
