#include "apps/server/service.h"

#include <malloc.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "apps/server/fault.h"
#include "apps/server/job_pictures.h"
#include "apps/server/log.h"
#include "apps/server/page.h"
#include "apps/server/request_log.h"
#include "base/names.h"
#include "core/device_lost.h"

namespace ebb::server {
namespace {

constexpr double looking_seconds = 10;

// Two to four, so that the pictures of a batch are encoded side by side where there are processors.
size_t codec_threads() { return std::clamp<size_t>(std::thread::hardware_concurrency() / 4, 2, 4); }

// Of a fault of HTTP, which has a status and a sentence alone.
HttpFault fault_of_http(int status, const std::string& sentence) {
  return {status, status == 503 ? "too_much_waits" : "bad_request", sentence};
}

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
  const auto answer = [&](const HttpFault& f) {
    const HttpFault told(f.status, f.code, call.service.catalogue().for_clients(f.what()), f.field);
    call.reply(fault(told, *call.request));
  };
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
      codec_(codec_threads()),
      folders_(options_.folder_time),
      scans_(options_.folder_time) {
  const std::string jobs =
      options_.out.empty() ? "" : (std::filesystem::path(options_.out) / ".jobs").string();
  queue_ = std::make_unique<Queue>(options_.queue, jobs, [this](const std::string& s) { say(s); });
  queue_->when_forgotten([this](const JobView& v) {
    finished_.add(v.job->id, steady_time());
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
                        return render_fault(fault_of_http(status, sentence), {});
                      },
                  .refused = [this](const std::string& method, const std::string& path,
                                    int status) { say_refused(method, path, status); }});
}

Service::~Service() {
  stop();
  catalogue_->finish({});  // nobody waits for it any more
}

void Service::say(const std::string& line) const { server_log().add(line); }

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

const Route* Service::route_at(const std::string& path, std::string& methods) const {
  const Route* found = nullptr;
  for (const Route& route : routes_) {
    if (!matched(route.pattern, path)) continue;
    methods += str(found ? ", " : "", route.method);
    found = &route;
  }
  return found;
}

Admission Service::admit(const Request& r) {
  const Route* route = route_of(r, nullptr);
  std::string methods;
  const Route* const beside = route ? route : route_at(r.path, methods);
  Admission out{
      .refusal = {},
      .body_limit = route ? route->body : small_body,
      .headers = {{"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"}}};
  const RenderFault fault = beside ? beside->fault : render_fault;
  if (route)
    out.fault = [fault, method = r.method, path = r.path](int status, const std::string& sentence) {
      Request head;
      head.method = method, head.path = path;
      return fault(fault_of_http(status, sentence), head);
    };
  try {
    for (auto& h : guard_.cors(r)) out.headers.push_back(std::move(h));
    if (r.method == "OPTIONS") {
      RouteAccess open{.open = true};
      guard_.check(r, &open);
      out.refusal = guard_.preflight(r);
      return out;
    }
    guard_.check(r, route ? &route->access : nullptr);
    if (!beside) throw HttpFault(404, "not_found", str("there is nothing at ", printable(r.path)));
    if (!route) {
      out.headers.push_back({"Allow", methods});
      throw HttpFault(405, "wrong_method",
                      str(printable(r.path), " takes ", methods, " (got ", r.method, ")"));
    }
    if (ending_) throw HttpFault(503, "shutting_down", "the server is shutting down");
    if (route->access.makes_job) queue_->check_room();
  } catch (const HttpFault& f) {
    out.refusal = fault(f, r);
    say_refused(r.method, r.path, f.status);
  }
  return out;
}

void Service::say_refused(const std::string& method, const std::string& path, int status) const {
  if (!options_.log) return;
  const auto word = [](const std::string& text, size_t longest) {
    return text.empty() ? "-" : printable(text.substr(0, longest));
  };
  say(str(word(method, 20), ' ', word(path, 200), ' ', status, " refused"));
}

void Service::handle(std::shared_ptr<const Request> request, std::shared_ptr<Exchange> exchange) {
  std::vector<std::string> parts;
  const Route* route = route_of(*request, &parts);  // admit() has found it
  const auto job = std::make_shared<std::string>();
  if (options_.log) exchange = std::make_shared<Logged>(std::move(exchange), *request, job);
  const Call call{.service = *this,
                  .request = std::move(request),
                  .exchange = std::move(exchange),
                  .parts = std::move(parts),
                  .job = job};
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
  auto job = queue_->submit(std::move(spec));
  const std::string &prompt = job->spec.flags.prompt, &negative = job->spec.flags.negative;
  *call.job += (call.job->empty() ? "" : ",") + job->id;
  if (options_.log_prompts && !(prompt.empty() && negative.empty()))
    say(str("job ", printable(job->id), " prompt: ", one_line(prompt),
            negative.empty() ? "" : " negative: " + one_line(negative)));
  return job;
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
  const bool is_idle = queue_->run_idle([this, later = call.without_body(), job] {
    answer_later(later, [&](const Call& c) {
      try {
        const JobMemory m = engine_->plan(*job);
        c.reply({{"bytes", m.bytes}, {"limit", m.limit}, {"text", m.text}});
      } catch (const DeviceLost& e) {
        lose_device(e.what());
        throw HttpFault(503, "device_lost", e.what());
      } catch (const Error& e) {  // as where it does not fit
        c.reply({{"bytes", nullptr}, {"limit", nullptr}, {"text", e.what()}});
      }
    });
    unload_if_asked();
  });
  if (!is_idle) call.reply({{"bytes", nullptr}, {"limit", nullptr}, {"text", nullptr}});
}

void Service::answer_when_done(const Call& call, JobSpec spec, Render render,
                               const std::function<void()>& queued) {
  const auto job = submit(call, std::move(spec));
  try {
    if (queued) queued();
    cancel_on_leave(call, job);
    queue_->when_finished(
        *job, [this, later = call.without_body(), render = std::move(render)](const JobView& v) {
          codec_.add([this, later, render, v] {
            answer_later(later, [&](const Call& c) { c.reply(render(v)); });
          });
        });
  } catch (...) {  // nobody would get its pictures
    queue_->cancel(*job);
    throw;
  }
}

void Service::cancel_on_leave(const Call& call, const std::shared_ptr<const Job>& job) {
  if (options_.keep_orphans) return;
  call.exchange->on_leave([this, job] {
    codec_.add([this, job] { queue_->cancel(*job); });  // which removes its files
  });
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

// ---- what is looked at ------------------------------------------------------------------------

void Service::look() {
  const std::lock_guard lock(mutex_);
  looked_ = steady_time();
}

bool Service::is_looked_at() const {
  const Json enabled = settings_.get("live_previews_enable");
  if (enabled.is_boolean() && !enabled.get<bool>()) return false;
  if (queue_->subscribers() > 0) return true;
  const std::lock_guard lock(mutex_);
  return steady_time() - looked_ < looking_seconds;
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
  const char* state = name.empty() ? "none" : ready ? "ready" : "loading";
  queue_->tell("model", {{"name", name}, {"state", state}});
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
  queue_->run_idle([this] { unload_if_asked(); });  // else behind the job or task that runs
}

}  // namespace ebb::server
